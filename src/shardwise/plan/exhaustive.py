"""Look at every legal policy: the fastest that fit with room to spare first, and nothing faster left out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from shardwise.case import Case
from shardwise.estimate.synced import ExtraSteps, SyncChoice
from shardwise.plan.constraints import Constraint
from shardwise.plan.keep import Keep, PricedPolicies
from shardwise.plan.losers import Loser
from shardwise.plan.scanning import Pricing, Scanning
from shardwise.plan.space import Limits, space
from shardwise.software import Stack
from shardwise.spec.policy import OFFLOAD, Policy

HEADROOM = 0.94
"""share of a GPU's memory a plan may fill: estimates err, and allocators fragment"""


@dataclass(frozen=True)
class Candidate:
    policy: Policy
    step_s: float
    tokens_per_s_per_gpu: float
    peak_bytes: float
    extra: ExtraSteps | None = None
    """more steps to the same loss than with the mean gradient; None: it is the mean gradient"""

    @property
    def to_loss_s(self) -> float:
        """The step, stretched by the steps it takes more."""
        return self.step_s * (1.0 + (self.extra.share or 0.0 if self.extra else 0.0))


@dataclass(frozen=True)
class Ranking:
    best: tuple[Candidate, ...]
    losers: tuple[Loser, ...]
    """the best policy of each kind that did not win, and by how much"""
    frontier: tuple[Candidate, ...]
    """where asked for: policies inside the limit that no other equals in both step time and memory, fastest first"""
    smallest: Candidate | None
    """what needs the least memory, when nothing fits"""
    points: int
    """legal policies inside the constraints"""
    evaluated: int
    """estimates made; the bounds answer for the other points"""
    fitting: int
    """of those evaluated, policies inside the limit"""
    finished: bool
    """false when interrupted: the best is the best so far"""
    limit_bytes: float


def scan(
    case: Case,
    *,
    top: int = 10,
    headroom: float = HEADROOM,
    limits: Limits | None = None,
    only: Iterable[Constraint] = (),
    losers: bool = True,
    bounded: bool = True,
    frontier: bool = False,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    sync: SyncChoice | None = None,
) -> Ranking:
    """Ranks by step time among the policies that fit into `headroom` of the memory; ties go to the smaller one.

    `only` leaves out what the user does not allow. Without `losers` only the best are looked for, which is faster.
    Without `bounded` every policy is estimated; a `frontier` needs
    that. `progress` is told (frames done, frames). Ctrl-C ends the scan; what was seen is ranked.
    `sync`: a strategy of data parallelism in place of the mean gradient; ZeRO then shards inside its workers.
    """
    if not 0 < headroom <= 1:
        raise ValueError(f"headroom: {headroom:g} is out of range; write a share of the memory above 0 and at most 1")
    if top < 1:
        raise ValueError(f"top: {top} is out of range; write a whole number of 1 or more")
    cluster, stack = case.cluster, case.stack
    found = space(case, limits if sync is None else _limits_with(sync, stack, limits), only)
    limit = min(headroom * cluster.gpu.memory_bytes, cluster.gpu.memory_bytes - stack.memory.reserve_bytes)
    keep = Keep(limit, top, losers, frontier)
    # the bounds set out from recompute of all layers and of none; while activations are copied to the host, recompute
    # hides copies and may shorten a step, so that nothing bounds it
    away = any(OFFLOAD[code] in ("activations", "both") for code in found.settings.offload)
    bounded = bounded and not frontier and not away and found.settings.whole == found.settings.recompute
    finished = Scanning(Pricing(case, sync), found, keep, bounded=bounded, processes=processes).run(progress)

    def candidates(seen: PricedPolicies) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(
                structs.replace(seen.policies[i], sync=sync.text) if sync else seen.policies[i],
                float(step),
                case.job.step_tokens / float(step) / cluster.gpus,
                float(peak),
                sync.extra if sync else None,
            )
            for i, (step, peak) in enumerate(zip(seen.steps, seen.peaks, strict=True))
            if np.isfinite(peak)
        )

    return Ranking(
        best=candidates(keep.best),
        losers=losers_of(keep),
        frontier=candidates(keep.frontier),
        smallest=None if len(keep.best) else next(iter(candidates(keep.smallest)), None),
        points=found.points,
        evaluated=keep.evaluated,
        fitting=keep.fitting,
        finished=finished,
        limit_bytes=limit,
    )


def _limits_with(sync: SyncChoice, stack: Stack, limits: Limits | None) -> Limits:
    bounds = limits or Limits()
    stages = bounds.zero or stack.abilities.zero
    kept = tuple(z for z in stages if not (z and sync.strategy.needs_whole))
    return structs.replace(bounds, replicas=True, zero=kept or (0,))


def losers_of(keep: Keep) -> tuple[Loser, ...]:
    """The best of each kind that has a legal policy and that the winner is not."""
    if not len(keep.best):
        return ()
    winner = keep.best.take(np.array([0]))
    found = []
    for kind, best, smallest in zip(keep.kinds, keep.of_kind, keep.small_of_kind, strict=True):
        if kind.member(winner.policies)[0] or not len(smallest):
            continue
        told = best if len(best) else smallest
        step, peak = float(told.steps[0]), float(told.peaks[0])
        slower = step / float(winner.steps[0]) - 1 if len(best) else None
        found.append(Loser(kind.name, told.policies[0], step, peak, slower, max(peak - keep.limit, 0.0)))
    return tuple(found)
