"""Where a policy stands among all that could have run instead: how many are faster, and which is the fastest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from msgspec.structs import replace

from shardwise.estimate.closed_form import estimate
from shardwise.search.space import Limits, space
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import CHOICES, Ints, Policies, Policy
from shardwise.spec.rules import legal
from shardwise.spec.stack import Stack

CHUNK = 16_384
AHEAD = 64
"""policies looked at on every stage at a time, until the fastest is one of them"""
SAME = 1e-9
"""steps closer than this share are one step"""
Allowed = Mapping[str, Sequence[bool | int | str]]
NONE: Allowed = {}


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


def standing(
    model: Model, cluster: Cluster, job: Job, stack: Stack, step_s: float, *, allowed: Allowed = NONE
) -> Standing:
    """Where a step of that length stands in the space of this stack; `allowed` narrows fields to some values."""
    given = (model, cluster, job)
    policies = _open(*given, stack, allowed)
    limit = cluster.gpu.memory_bytes - stack.reserve_bytes
    steps, peaks = np.empty(len(policies)), np.empty(len(policies))
    exact = np.zeros(len(policies), dtype=np.bool_)

    def fill(rows: Ints, *, every_stage: bool) -> None:
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            found = estimate(*given, policies.take(part), stack, every_stage=every_stage)
            steps[part], peaks[part], exact[part] = found.times.step_s, found.memory.peak, every_stage

    fill(np.arange(len(policies)), every_stage=False)
    # the likely worst stages never tell more time or memory than all of them, so nobody ahead is overlooked
    fill(np.flatnonzero((peaks <= limit) & (steps < step_s)), every_stage=True)
    fits = peaks <= limit
    while True:
        order = np.argsort(np.where(fits, steps, np.inf))[: min(AHEAD, int(fits.sum()))]
        if not len(order) or exact[order[0]]:
            break
        fill(order[~exact[order]], every_stage=True)
        fits = peaks <= limit
    return Standing(
        legal=len(policies),
        fitting=int(fits.sum()),
        faster=int((fits & (steps < step_s * (1 - SAME))).sum()),
        fastest=policies[int(order[0])] if len(order) else None,
    )


def _open(model: Model, cluster: Cluster, job: Job, stack: Stack, allowed: Allowed) -> Policies:
    """The space, each narrowed field at its one value or among its values, nothing twice."""
    limits = Limits()
    for field in ("zero", "recompute"):
        if field in allowed:
            limits = replace(limits, **{field: tuple(allowed[field])})
    policies = space(model, cluster, job, stack, limits).policies
    if not allowed:
        return policies
    columns: dict[str, Ints] = {f.name: getattr(policies, f.name) for f in fields(policies)}
    kept = np.ones(len(policies), dtype=np.bool_)
    for field, values in allowed.items():
        codes = [_code(field, value) for value in values]
        if len(codes) == 1:
            columns[field] = np.full(len(policies), codes[0], dtype=np.int64)
        else:
            kept &= np.isin(columns[field], codes)
    table = np.unique(np.stack(list(columns.values()), axis=1)[kept], axis=0)
    narrowed = Policies(**{name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(columns)})
    return narrowed.take(np.flatnonzero(legal(model, cluster, job, narrowed)))


def _code(field: str, value: bool | int | str) -> int:
    return CHOICES[field].index(str(value)) if field in CHOICES else int(value)
