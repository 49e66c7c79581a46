"""Faster policies that a target can state: changes of one setting, and the one that `plan` recommends among them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec.structs import replace as policy_with

from shardwise.plan import scan
from shardwise.plan.candidate import Candidate
from shardwise.plan.choice import POOL, RISK, recommended_of
from shardwise.plan.constraints import Constraint, constraints_of
from shardwise.plugins.pipeline import usual_schedule
from shardwise.programs.formats._contract import Format, Lack, Launch, expressed, gaps_of, settled
from shardwise.spec.policy import COPY, OVERLAPS, RECOMPUTE, ZERO, Policies, Policy, choices
from shardwise.spec.rules import legal
from shardwise.step.estimate.chance import out_of_memory_chance
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import Case

LEAST_GAIN = 0.005
"""share of a step by which a change must be faster: below, predictions do not distinguish two policies"""
SHOWN = 3
MOST_TRIED = 6
"""plans made for a target"""
LOOKED_AT = 200
"""of the best of a plan"""


@dataclass(frozen=True)
class Improvement:
    policy: Policy
    fields: dict[str, tuple[Any, Any]]
    """before and after"""
    step_s: float
    step_change: float
    """of the step's time, as a share of it: below zero is faster"""


def step_change(launch: Launch, gap: Lack) -> float:
    """How much longer a step takes without what a gap leaves out."""
    other = settled(policy_with(launch.policy, **dict(gap.instead or {})), launch.case)
    seconds = estimate(launch.case, Policies.of([launch.policy, other])).times.step_s
    return float(seconds[1] / seconds[0]) - 1.0


def improvements(target: Format, launch: Launch) -> list[Improvement]:
    """The best change of each setting, the fastest first; where the policy does not fit, changes that make it fit."""
    case, now = launch.case, launch.policy
    stated = (_as_stated(target, launch, policy) for policy in _neighbours(now))
    tried = list(dict.fromkeys(policy for policy in stated if policy is not None and policy != now))
    if not tried:
        return []
    columns = Policies.of([now, *tried])
    allowed = legal(case.model, case.cluster, case.job, columns)
    kept = [now, *[policy for policy, ok in zip(tried, allowed[1:], strict=True) if ok]]
    found = estimate(case, Policies.of(kept))
    seconds, fits = found.times.step_s, found.fits
    safe = _safe(case, found)
    best: dict[frozenset[str], Improvement] = {}
    for number in range(1, len(kept)):
        change = _change(now, kept[number], float(seconds[0]), float(seconds[number]))
        settings = frozenset(change.fields)
        worth = change.step_change <= -LEAST_GAIN or not fits[0]
        if safe[number] and worth and (settings not in best or change.step_change < best[settings].step_change):
            best[settings] = change
    return sorted(best.values(), key=lambda change: (change.step_change, len(change.fields)))[:SHOWN]


def _safe(case: Case, found: Estimate) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Whether each policy is no more likely to run out of memory than a recommended one may be, or than the first is;
    where all are more likely, whether it fits."""
    chance = out_of_memory_chance(case, found.memory.peak)
    now = float(chance[0]) if found.fits[0] else 0.0
    safe = found.fits & (chance <= max(RISK, now))
    return np.asarray(safe if safe[1:].any() else found.fits)


def best_stated(target: Format, launch: Launch) -> Improvement | None:
    """The one to take of a plan's best, as the target runs them."""
    case, now = launch.case, launch.policy
    ranked = scan(case, top=LOOKED_AT, losers=False)
    taken = ranked.recommended
    if taken is not None and _as_stated(target, launch, taken.policy) == settled(taken.policy, case):
        before = float(estimate(case, Policies.of([now])).times.step_s[0])
        return _change(now, settled(taken.policy, case), before, taken.step_s)
    planned = (_as_stated(target, launch, found.policy) for found in ranked.best)
    known = list(dict.fromkeys(policy for policy in planned if policy is not None))
    if not known:
        return None
    found = estimate(case, Policies.of([now, *known]))
    seconds, peaks, safe = found.times.step_s, found.memory.peak, _safe(case, found)
    pool = [
        Candidate(policy, float(step), case.job.step_tokens / float(step) / case.cluster.gpus, float(peak))
        for policy, step, peak, ok in zip(known, seconds[1:], peaks[1:], safe[1:], strict=True)
        if ok
    ]
    best = recommended_of(case, sorted(pool, key=lambda each: each.step_s)[:POOL])
    return None if best is None else _change(now, best.policy, float(seconds[0]), best.step_s)


def planned_for(target: Format, launch: Launch, only: Iterable[Constraint]) -> Policy | None:
    """The policy to take among those that the target can state, `only` within these bounds; None: there is none.
    Values that it refuses in a plan's choice are left out, and the rest is planned again."""
    single = [axis for axis in (*COPY, "ep") if target.only.get(axis) == (1,)]
    bounds = [*only, *constraints_of([f"{axis}=1" for axis in single])]
    for _ in range(MOST_TRIED):
        ranked = scan(launch.case, top=LOOKED_AT, losers=False, only=bounds)
        taken = [each.policy for each in (ranked.recommended, *ranked.best, ranked.smallest) if each is not None]
        if not taken:
            return None
        stated = next((policy for policy in taken if _as_stated(target, launch, policy) is not None), None)
        if stated is not None:
            return settled(stated, launch.case)
        refused = gaps_of(target, replace(launch, policy=settled(taken[0], launch.case), layers=()))
        further = [f"{gap.field}!={gap.value}" for gap in refused
                   if gap.instead is None and (isinstance(gap.value, int) or gap.field in choices())]  # fmt: skip
        if not further:
            return None
        bounds += constraints_of(further)
    return None


def _change(now: Policy, policy: Policy, before_s: float, after_s: float) -> Improvement:
    names = [name for name in now.__struct_fields__ if getattr(now, name) != getattr(policy, name)]
    fields = {name: (getattr(now, name), getattr(policy, name)) for name in names}
    return Improvement(policy, fields, after_s, after_s / before_s - 1.0)


def _as_stated(target: Format, launch: Launch, policy: Policy) -> Policy | None:
    """The policy as the target runs it; None: it cannot."""
    try:
        changed, _ = expressed(target, replace(launch, policy=settled(policy, launch.case), layers=()))
    except ValueError:
        return None
    return changed.policy


def _neighbours(now: Policy) -> Iterator[Policy]:
    for zero in ZERO:
        yield policy_with(now, zero=zero)
    for recompute in RECOMPUTE:
        yield policy_with(now, recompute=recompute, recompute_layers=-1, recompute_modules=())
    for name in (*OVERLAPS, "sp"):
        yield policy_with(now, **{name: not getattr(now, name)})
    for loss in ("fused", "chunked"):
        yield policy_with(now, loss=loss)
    yield policy_with(now, attention="flash")
    yield policy_with(now, shard_group=0)
    yield policy_with(now, offload="none")
    yield policy_with(now, offload="optimizer", offload_share=1.0)
    for factor in (2, 4):
        yield policy_with(now, micro_batch=now.micro_batch * factor)
        if now.micro_batch % factor == 0:
            yield policy_with(now, micro_batch=now.micro_batch // factor)
    if now.pp > 1:
        for vpp in (1, 2, 4, 5, 8, 10):
            overlapped = now.overlap_pp or vpp > 1
            yield policy_with(now, vpp=vpp, schedule=usual_schedule(vpp), overlap_pp=overlapped)
    for axis in (*COPY, "ep"):
        size = getattr(now, axis)
        for other in (1, size * 2, size // 2):
            yield from _resized(now, axis, other)


def _resized(now: Policy, axis: str, size: int) -> Iterator[Policy]:
    """Data parallelism makes up for the other size."""
    if size < 1 or axis == "ep":
        if size >= 1:
            yield policy_with(now, ep=size, etp=0)
        return
    ranks = now.dp * getattr(now, axis)
    if ranks % size == 0:
        single = {"vpp": 1, "schedule": usual_schedule(1)} if axis == "pp" and size == 1 else {}
        yield policy_with(now, **{"dp": ranks // size, axis: size, "etp": 0, "shard_group": 0, **single})
