"""Where a policy stands among all that could have run instead: how many are faster, and which is the fastest.

Counted are degrees, chunks, schedules, micro-batches, ZeRO stages and recompute; everything else stays at its default.
What can only slow a step down (an overlap switched off, no sequence parallelism, offloading what fits) would flatter
every rank, and a wider search should not move it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.scanning import Pricing
from shardwise.plan.space import Limits, space
from shardwise.spec.policy import ORDERS, RECOMPUTE, ZERO, Policies, Policy, choices, encoded
from shardwise.spec.rules import legal
from shardwise.work.case import Case

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
    """those inside the memory"""
    faster: int
    """fitting ones with a shorter step"""
    fastest: Policy | None

    @property
    def share(self) -> float:
        """Of the fitting policies, how many are faster: 0 is the best."""
        return self.faster / self.fitting if self.fitting else 0.0


class Contest:
    """The space of a stack, `allowed` narrowing fields to some values; every policy estimated once."""

    def __init__(self, case: Case, allowed: Allowed = NONE) -> None:
        self.stack, self.limit = case.stack, case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
        self.policies = _open(case, allowed)
        seen = Pricing(case).price(self.policies)
        self.steps, self.peaks = seen.steps, seen.peaks

    def standing(self, step_s: float, only: Allowed = NONE) -> Standing:
        """Where a step of that length stands, among all or among the policies with such values only."""
        among = np.ones(len(self.policies), dtype=np.bool_)
        for field, values in only.items():
            among &= np.isin(getattr(self.policies, field), [_code(field, value) for value in values])
        fits = among & (self.peaks <= self.limit)
        return Standing(
            legal=int(among.sum()),
            fitting=int(fits.sum()),
            faster=int((fits & (self.steps < step_s * (1 - SAME))).sum()),
            fastest=self.policies[int(np.argmin(np.where(fits, self.steps, np.inf)))] if fits.any() else None,
        )


def _open(case: Case, allowed: Allowed) -> Policies:
    """Every legal policy, each narrowed field at its one value or among its values, nothing twice."""
    frames = space(case, Limits(zero=ZERO[:1], recompute=RECOMPUTE[:1], orders=ORDERS[:1])).frames
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
    return found.take(np.flatnonzero(legal(case.model, case.cluster, case.job, found)))


def _code(field: str, value: bool | int | str) -> int:
    return choices()[field].index(str(value)) if field in choices() else int(value)
