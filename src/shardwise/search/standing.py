"""Where a policy stands among all that could have run instead: how many are faster, and which is the fastest.

Counted are degrees, chunks, schedules, micro-batches, ZeRO stages and recompute; everything else stays at its default.
What can only slow a step down (an overlap switched off, no sequence parallelism, offloading what fits) would flatter
every rank, and a wider search should not move it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from shardwise.estimate.closed_form import estimate
from shardwise.search.space import Limits, space
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import CHOICES, RECOMPUTE, ZERO, Ints, Policies, Policy, encoded
from shardwise.spec.rules import legal
from shardwise.spec.stack import Stack

CHUNK = 16_384
AHEAD = 64
"""policies looked at on every stage at a time, until the fastest is one of them"""
SAME = 1e-9
"""steps closer than this share are one step"""
Allowed = Mapping[str, Sequence[bool | int | str]]
NONE: Allowed = {}
COUNTED = (
    "dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "schedule", "overlap_grad", "overlap_param", "overlap_tp",
    "overlap_pp",
)  # fmt: skip
"""what the space varies and the count keeps; the overlaps are the stack's"""
ZERO_WITH_STAGES = 1
"""beyond it gradients or parameters would travel in every micro-batch, and few programs can"""
USUAL_RECOMPUTE = ("none", "full")
"""selective recompute drops the attention scores, which flash attention never keeps"""


@dataclass(frozen=True)
class Standing:
    legal: int
    """policies of the space, the one asked about not counted"""
    fitting: int
    """those inside the memory; slower ones are counted by their likely worst stages only"""
    faster: int
    """fitting ones with a shorter step"""
    fastest: Policy | None

    @property
    def share(self) -> float:
        """Of the fitting policies, how many are faster: 0 is the best."""
        return self.faster / self.fitting if self.fitting else 0.0


class Contest:
    """The space of a stack, `allowed` narrowing fields to some values; every policy estimated once."""

    def __init__(self, model: Model, cluster: Cluster, job: Job, stack: Stack, allowed: Allowed = NONE) -> None:
        self.given = (model, cluster, job)
        self.stack, self.limit = stack, cluster.gpu.memory_bytes - stack.reserve_bytes
        self.policies = _open(*self.given, stack, allowed)
        size = len(self.policies)
        self.steps, self.peaks, self.exact = np.empty(size), np.empty(size), np.zeros(size, dtype=np.bool_)
        self._fill(np.arange(size), every_stage=False)

    def standing(self, step_s: float, only: Allowed = NONE) -> Standing:
        """Where a step of that length stands, among all or among the policies with such values only."""
        among = np.ones(len(self.policies), dtype=np.bool_)
        for field, values in only.items():
            among &= np.isin(getattr(self.policies, field), [_code(field, value) for value in values])
        # the likely worst stages never tell more time or memory than all of them, so nobody ahead is overlooked
        self._fill(np.flatnonzero(among & self._fits & (self.steps < step_s) & ~self.exact), every_stage=True)
        fastest = self._fastest(among)
        faster = among & self._fits & (self.steps < step_s * (1 - SAME))
        return Standing(
            legal=int(among.sum()),
            fitting=int((among & self._fits).sum()),
            faster=int(faster.sum()),
            fastest=None if fastest is None else self.policies[fastest],
        )

    @property
    def _fits(self) -> NDArray[np.bool_]:
        return np.asarray(self.peaks <= self.limit)

    def _fastest(self, among: NDArray[np.bool_]) -> int | None:
        while True:
            fits = among & self._fits
            order = np.argsort(np.where(fits, self.steps, np.inf))[: min(AHEAD, int(fits.sum()))]
            if not len(order):
                return None
            if self.exact[order[0]]:
                return int(order[0])
            self._fill(order[~self.exact[order]], every_stage=True)

    def _fill(self, rows: Ints, *, every_stage: bool) -> None:
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            found = estimate(*self.given, self.policies.take(part), self.stack, every_stage=every_stage)
            self.steps[part], self.peaks[part], self.exact[part] = found.times.step_s, found.memory.peak, every_stage


def _open(model: Model, cluster: Cluster, job: Job, stack: Stack, allowed: Allowed) -> Policies:
    """Every legal policy, each narrowed field at its one value or among its values, nothing twice."""
    frames = space(model, cluster, job, stack, Limits(zero=ZERO[:1], recompute=RECOMPUTE[:1])).policies
    settings = np.array(
        [(_code("zero", z), _code("recompute", r))
         for z in allowed.get("zero", ZERO) for r in allowed.get("recompute", USUAL_RECOMPUTE)]
    )  # fmt: skip
    rows = np.repeat(np.arange(len(frames)), len(settings))
    columns: dict[str, Ints] = {
        f.name: getattr(frames, f.name)[rows]
        if f.name in COUNTED
        else np.full(len(rows), encoded(Policy(), f.name), dtype=np.int64)
        for f in fields(frames)
    }
    columns["zero"], columns["recompute"] = np.tile(settings, (len(frames), 1)).T
    columns["sp"] = (columns["tp"] > 1).astype(np.int64)
    alone = columns["dp"] * columns["cp"] == 1  # every ZeRO stage is the same run
    columns["zero"] = np.where(alone, settings[:, 0].min(initial=ZERO[-1]), columns["zero"])
    kept = np.ones(len(rows), dtype=np.bool_)
    for field, values in allowed.items():
        codes = [_code(field, value) for value in values]
        if len(codes) == 1:
            columns[field] = np.full(len(rows), codes[0], dtype=np.int64)
        else:
            kept &= np.isin(columns[field], codes)
    kept &= (columns["pp"] == 1) | (columns["zero"] <= ZERO_WITH_STAGES)
    table = np.unique(np.stack(list(columns.values()), axis=1)[kept], axis=0)
    found = Policies(**{name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(columns)})
    return found.take(np.flatnonzero(legal(model, cluster, job, found)))


def _code(field: str, value: bool | int | str) -> int:
    return CHOICES[field].index(str(value)) if field in CHOICES else int(value)
