"""Look at every legal policy: the fastest that fit with room to spare first, and nothing faster left out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from shardwise.plan.candidate import Candidate
from shardwise.plan.choice import POOL, RISK, SAFE, recommended_of
from shardwise.plan.constraints import Constraint
from shardwise.plan.keep import Keep, PricedPolicies
from shardwise.plan.losers import Loser
from shardwise.plan.scanning import Pricing, Scanning
from shardwise.plan.space import Limits, space
from shardwise.spec.parameters import check_value
from shardwise.spec.policy import OFFLOAD
from shardwise.spec.software import Stack
from shardwise.step.estimate.chance import most_bytes
from shardwise.step.estimate.synced import SyncChoice
from shardwise.work.case import Case

HEADROOM = 0.94
"""share of a GPU's memory a plan may fill: estimates err, and allocators fragment"""


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
    """memory a listed policy may fill"""
    risk: float
    """chance to run out of memory that the list was asked to stay below"""
    recommended: Candidate | None = None
    """the one to take; None where nothing fits"""
    fastest: Candidate | None = None
    """if everything is right: of all that the scan met, up to the last byte that `headroom` allows"""
    safest: Candidate | None = None


def scan(
    case: Case,
    *,
    top: int = 10,
    headroom: float = HEADROOM,
    risk: float = RISK,
    limits: Limits | None = None,
    only: Iterable[Constraint] = (),
    losers: bool = True,
    bounded: bool = True,
    frontier: bool = False,
    extremes: bool = False,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    so_far: Callable[[Sequence[Candidate]], None] | None = None,
    sync: SyncChoice | None = None,
    at_most_s: float = np.inf,
) -> Ranking:
    """Ranks by step time among the policies that fit into `headroom` of the memory with a chance to run out of it of
    at most `risk`, or where none does into `headroom` alone; ties go to the smaller one.

    `only` leaves out what the user does not allow. Without `losers` only the best are looked for, which is faster.
    Without `bounded` every policy is estimated; a `frontier` needs that. `extremes`: look for the fastest and the
    safest too. `progress` is told (frames done, frames), `so_far` the best that is known by then. Ctrl-C
    ends the scan; what was seen is ranked.
    `sync`: a strategy of data parallelism in place of the mean gradient; ZeRO then shards inside its workers.
    `at_most_s`: a step that is enough; slower policies are not listed, and where none is that fast the scan is short.
    """
    check_value("headroom", float(headroom))
    if top < 1:
        raise ValueError(f"top: {top} is out of range; write a whole number of 1 or more")
    check_value("risk", float(risk))
    cluster, stack = case.cluster, case.stack
    found = space(case, limits if sync is None else limits_with(sync, stack, limits), only)
    most = min(headroom * cluster.gpu.memory_bytes, cluster.gpu.memory_bytes - stack.memory.reserve_bytes)
    # the bounds set out from recompute of all layers and of none; while activations are copied to the host, recompute
    # hides copies and may shorten a step, so that nothing bounds it
    away = any(OFFLOAD[code] in ("activations", "both") for code in found.settings.offload)
    bounded = bounded and not frontier and not away and found.settings.whole == found.settings.recompute
    limit = min(most, most_bytes(case, risk))
    looked = Scanning(Pricing(case, sync, found.settings.limits), found, bounded=bounded, processes=processes)
    others: tuple[float, ...] = (most, min(limit, most_bytes(case, SAFE))) if extremes else ()
    keep = Keep(limit, max(top, POOL), losers, frontier, others, at_most_s)

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

    def told(done: int, of: int) -> None:
        if progress is not None:
            progress(done, of)
        if so_far is not None:
            so_far(candidates(keep.best)[:top])

    def too_slow() -> bool:
        """Whether something is inside the limit after all, though slower than what is enough."""
        any_step = Keep(limit, 1, kinds_too=False)
        return bool(np.isfinite(at_most_s)) and looked.run(any_step, None) and len(any_step.best) > 0

    finished = looked.run(keep, told)
    if not len(keep.best) and limit < most and finished and not too_slow():
        limit, keep = most, Keep(most, max(top, POOL), losers, frontier, others, at_most_s)
        finished = looked.run(keep, told)

    def safest() -> Candidate | None:
        """The fastest that is nearly sure to fit; what the scan met of the kind bounds the search."""
        best, inside = keep.inside_others[1], others[1]
        if finished and inside < limit:
            safe = Keep(inside, 1, kinds_too=False, best=best)
            looked.run(safe, None)
            best = safe.best
        return next(iter(candidates(best)), None)

    pool = candidates(keep.best)
    choice = recommended_of(case, pool[:POOL])
    return Ranking(
        best=pool[:top],
        losers=losers_of(keep),
        frontier=candidates(keep.frontier),
        smallest=None if len(keep.best) else next(iter(candidates(keep.smallest)), None),
        points=found.points,
        evaluated=keep.evaluated,
        fitting=keep.fitting,
        finished=finished,
        limit_bytes=limit,
        risk=risk,
        recommended=choice,
        fastest=next(iter(candidates(keep.inside_others[0])), None) if extremes else None,
        safest=safest() or choice if extremes else None,
    )


def limits_with(sync: SyncChoice, stack: Stack, limits: Limits | None) -> Limits:
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
