"""The lines of one cluster: every policy whose stages could beat what is known, the least bound first.

Without recompute a pipeline's slowest stage takes at least the mean of all, and at least what whole layers allow: the
step less what the even split loses to that is a bound for whatever stages the policy may have. It is worked out for all
policies at once, first for frames without their settings, then for those that are left.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from msgspec import structs

from shardwise.arrays import Floats, Ints
from shardwise.plan.bounded import plain
from shardwise.plan.constraints import Constraint
from shardwise.plan.exhaustive import limits_with
from shardwise.plan.search.problems.joint._problem import Line
from shardwise.plan.search.problems.joint._room import commonest, recomputed_least
from shardwise.plan.search.problems.stages import PLAIN_MIX, GpuGroup, StageProblem, stage_problem
from shardwise.plan.space import ALL_LAYERS, NONE, Limits, Space, space
from shardwise.plugins.pipeline import schedule_names
from shardwise.plugins.schedules import used
from shardwise.spec.policy import RECOMPUTE, Policies, Policy
from shardwise.step.estimate.closed_form import estimate, floor_times, memory_alone
from shardwise.step.estimate.synced import SyncChoice, allowed_with
from shardwise.step.estimate.synced.rules import job_refusal
from shardwise.step.estimate.time import Times, work_alone
from shardwise.work.case import Case
from shardwise.work.stages import totals

LAWFUL = ("none", "1f1b", "gpipe", "interleaved", "looped_bfs")
"""schedules whose idle time is the law that stages are priced by; others are taken as planned"""
MOST_LINES = 200
"""whose stages may be worked out; the bounds of the others still count"""
MOST_OWN = 1_000_000
"""degrees x stages x layers squared of a line whose stages have a tensor parallelism of their own"""
MOST_PLACED = 12
"""further lines whose nodes may be placed, those that could gain most"""
MOST_ENTRIES = 4_000_000
"""stages x layers squared of one line"""
TOGETHER = 4096
"""policies whose bounds are worked out at once: some of it is for each of their stages"""
ROUNDING = 1e-9


@dataclass(frozen=True)
class LineRequest:
    """What the lines of a cluster are made from."""

    case: Case
    limit_bytes: float
    """memory a stage may fill"""
    limits: Limits | None = None
    only: tuple[Constraint, ...] = ()
    sync: SyncChoice | None = None
    planned: bool = False
    """a plan has looked at every policy of one stage already"""
    open_case: Case | None = None
    """where nodes may lie elsewhere than in order: the case on a network that no placement is faster on"""
    case_of_ep: Callable[[int], Case] | None = None
    """the case as it is with experts on so many ranks, where that is known better than by the stack's imbalance"""

    @property
    def weight(self) -> float:
        """More steps to the same loss; infinite where nobody knows how many."""
        if self.sync is None:
            return 1.0
        return np.inf if self.sync.extra.share is None else 1.0 + self.sync.extra.share


@dataclass(frozen=True)
class PolicyLines:
    lines: list[Line]
    """the least bound first"""
    rest_s: float
    """no line that was left out costs less"""
    placed_s: float
    """nor any line, wherever its nodes lie; infinite where that was not asked"""


@dataclass(frozen=True)
class _Open:
    """A line before it is made."""

    least_s: float
    placed_s: float
    request: LineRequest
    within: Space
    policy: Policy


def lines_below(asked: Sequence[LineRequest], best_s: float, most: int = MOST_LINES) -> PolicyLines:
    """Lines whose bound is below `best_s`, with nodes in order or wherever they may lie."""
    found: list[_Open] = []
    for request in asked:
        refused = request.sync is not None and bool(job_refusal(request.sync, request.case.job))
        if not refused and np.isfinite(request.weight):
            found += _below(request, best_s / request.weight)
    found.sort(key=lambda each: each.least_s)
    rest = found[most].least_s if len(found) > most else np.inf
    placeable = sorted((each for each in found[most:] if np.isfinite(each.placed_s)), key=lambda each: each.placed_s)
    kept = [*found[:most], *placeable[:MOST_PLACED]]
    return PolicyLines([_line(each) for each in kept], rest, min((each.placed_s for each in found), default=np.inf))


def _line(found: _Open) -> Line:
    request, policy = found.request, found.policy
    case = request.case if request.case_of_ep is None else request.case_of_ep(policy.ep)
    mixes = mixes_of(case, found.within, policy)

    def build() -> StageProblem:
        stages = stage_problem(
            [GpuGroup(case, policy.pp)], policy, most_bytes=request.limit_bytes, mixes=mixes, sync=request.sync
        )
        return stages if policy.vpp == 1 else _equal_chunks(stages, policy.vpp)

    def own_tp() -> StageProblem | None:
        widest, degrees = _degrees(found.within, policy)
        if len(degrees) < 2 or len(degrees) * policy.pp * case.model.layers**2 > MOST_OWN:
            return None
        return stage_problem([GpuGroup(case, policy.pp)], widest, stage_tp=degrees, most_bytes=request.limit_bytes,
                             mixes=mixes, sync=request.sync)  # fmt: skip

    told = policy if request.sync is None else structs.replace(policy, sync=request.sync.text)
    return Line(told, found.least_s, build, pp=policy.pp, layers=case.model.layers, weight=request.weight,
                sync=request.sync, placed_s=found.placed_s, own_tp=own_tp)  # fmt: skip


def _degrees(within: Space, policy: Policy) -> tuple[Policy, tuple[int, ...]]:
    """The tensor parallelisms that stages of a pipeline may have side by side, as they pass on as many sequences at a
    time; and the policy with the largest of them."""
    frames = within.frames
    if policy.pp < 2 or policy.vpp > 1 or policy.ep > 1 or policy.shard_group:
        return policy, ()
    alike = (frames.pp == policy.pp) & (frames.cp == policy.cp) & (frames.ep == 1) & (frames.vpp == 1)
    alike &= frames.dp * frames.micro_batch == policy.dp * policy.micro_batch
    alike &= frames.schedule == schedule_names().index(policy.schedule)
    index = np.flatnonzero(alike)
    degrees = tuple(np.unique(frames.tp[index]).tolist())
    if len(degrees) < 2:
        return policy, ()
    largest = frames[int(index[frames.tp[index].argmax()])]
    return structs.replace(largest, zero=policy.zero, offload=policy.offload, order=policy.order), degrees


def _equal_chunks(found: StageProblem, chunks: int) -> StageProblem:
    """Only stages whose chunks hold equally many layers, and those of the stack's own split: the schedule's law is of
    chunks that are alike."""
    count = np.arange(found.layers + 1)
    allowed = np.broadcast_to((count[None, :] - count[:, None]) % chunks == 0, found.seconds.shape).copy()
    ends = np.cumsum(found.even[0])
    allowed[:, np.arange(found.stages), ends - np.array(found.even[0]), ends] = True
    return replace(found, seconds=np.where(allowed, found.seconds, np.inf))


def mixes_of(case: Case, within: Space, policy: Policy) -> tuple[tuple[str, str], ...]:
    """How the layers of a stage may recompute: all alike, or some more than the others. Two ways that keep the same are
    one."""
    names = sorted((RECOMPUTE[code] for code in within.settings.recompute), key=RECOMPUTE.index)
    kept = memory_alone(case, Policies.of([structs.replace(policy, recompute=name) for name in names])).peak
    told = [name for i, name in enumerate(names) if not any(kept[i] == kept[j] for j in range(i))]
    if within.settings.layers is None or len(told) == 1:
        return tuple((name, name) for name in told)
    return tuple(combinations(told, 2))


def _below(request: LineRequest, best_s: float) -> list[_Open]:
    case, limits, widest = request.case, request.limits, request.open_case or request.case
    bounds = limits if request.sync is None else limits_with(request.sync, case.stack, limits)
    within = space(case, bounds, request.only)
    frames = within.frames
    lawful = np.isin(frames.schedule, [schedule_names().index(name) for name in LAWFUL])
    # chunks of layers of several kinds lie in no run
    lawful &= (frames.vpp == 1) | (len(case.model.kinds) == 1)
    small = frames.pp * case.model.layers**2 <= MOST_ENTRIES
    alike = len(frames) > 0 and mixes_of(case, within, frames[0]) == PLAIN_MIX
    if request.planned and request.open_case is None and alike:
        # with one stage and no other way to recompute there is nothing else to find
        lawful &= frames.pp > 1
    index = np.flatnonzero(lawful & small & (case.model.layers > 0))
    if not len(index):
        return []
    floors = np.concatenate([_floors(widest, frames.take(part)) for part in _parts(index)])
    index = index[floors < best_s]
    if not len(index):
        return []
    policies = _settled(within, index)
    if request.sync is not None:
        policies = policies.take(np.flatnonzero(allowed_with(request.sync, case.model, case.job, policies)))
    modes = [code for code in within.settings.recompute if code != NONE]
    placed = _bounds(request, widest, policies, modes, best_s)
    kept = np.flatnonzero(placed < best_s * (1.0 - ROUNDING))
    policies, placed = policies.take(kept), placed[kept]
    least = placed
    if request.open_case is not None:
        least = np.maximum(_bounds(request, case, policies, modes, best_s), placed)
    anywhere = placed if request.open_case is not None else np.full(len(placed), np.inf)
    scale = request.weight * (1.0 - ROUNDING)
    return [
        _Open(scale * float(least[i]), scale * float(anywhere[i]), request, within, policies[int(i)])
        for i in np.argsort(least, kind="stable")
    ]


def _bounds(request: LineRequest, case: Case, policies: Policies, modes: Sequence[int], best_s: float) -> Floats:
    found = [_least(request, case, policies.take(part), modes, best_s) for part in _parts(np.arange(len(policies)))]
    return np.concatenate([np.empty(0), *found])


def _settled(within: Space, index: Ints) -> Policies:
    """Frames with every ZeRO group and offload, and nothing that recomputes."""
    table, offloads = within.shardings(index), within.settings.offload
    row, zero, group = np.repeat(table, len(offloads), axis=0).T
    lines = within.frames.take(index[row])
    settled = {"recompute": np.full(len(row), NONE), "recompute_layers": np.full(len(row), ALL_LAYERS)}
    if (lines.recompute_modules > 0).any():
        settled = {}
    return replace(lines, zero=zero, shard_group=group, offload=np.tile(offloads, len(table)), **settled)


def _least(request: LineRequest, case: Case, policies: Policies, modes: Sequence[int], best_s: float) -> Floats:
    """The step with the best stages that can be, and with as much recompute as memory asks for whatever they hold."""
    times = estimate(case, policies, sync=request.sync).times
    law = _law(case, policies, times)
    least = np.asarray(times.step_s - law.lost_s)
    alive = np.flatnonzero(least < best_s)
    if not len(alive):
        return least
    # a stage that takes longer makes the step as long as the best known
    pace = law.pace_s + (best_s - least) / np.maximum(law.steady_s, 1e-12)
    layer = times.units[commonest(case)].total
    few, most = policies.take(alive), np.minimum(pace / layer, float(case.model.layers))[alive]
    more = recomputed_least(case, few, request.limit_bytes, most, modes, request.sync)
    fits = np.isfinite(more)
    again = np.where(fits, more, 0.0)
    longer = np.maximum((law.mean_s - law.pace_s)[alive] + again / few.pp, 0.0)
    least[alive] += np.where(fits, law.steady_s[alive] * longer + law.idle_s[alive] * again, np.inf)
    return least


def _floors(case: Case, frames: Policies) -> Floats:
    bare = plain(frames)
    times = floor_times(case, bare)
    return np.asarray(work_alone(times) - _law(case, bare, times).lost_s)


@dataclass(frozen=True)
class _Law:
    """How a step grows with its stages, by policy."""

    lost_s: Floats
    """by which the step is longer than with the best stages that can be"""
    pace_s: Floats
    """of the slowest of those, one micro-batch"""
    mean_s: Floats
    """of all stages"""
    steady_s: Floats
    """seconds of the step for a second of the slowest stage"""
    idle_s: Floats
    """and for a second of all stages together"""


def _law(case: Case, policies: Policies, times: Times) -> _Law:
    layout = times.micro_batch.work.layout
    counts: list[float] = [*totals(case.model), 1.0, 1.0]
    nothing = np.zeros(len(policies))
    everything = sum((n * unit.total for n, unit in zip(counts, times.units, strict=True)), start=nothing)
    pp, micro = np.asarray(policies.pp, dtype=np.float64), np.asarray(layout.micro_batches, dtype=np.float64)
    idle = nothing
    for code, schedule in used(policies.schedule):
        chosen = policies.schedule == code
        idle = np.where(chosen, schedule.idle(policies.pp, policies.vpp, micro), idle)
    share = idle / np.maximum(pp - 1.0, 1.0)
    busy = times.step_s - times.parts["other"]
    stretch = (times.step_s - case.stack.host.step_overhead_s) / busy
    steady, slowest = stretch * np.maximum(micro - share, 0.0), times.stage_s.max(axis=1)
    pace = np.minimum(np.maximum(everything / pp, whole_pace(case, policies, times)), slowest)
    return _Law(steady * (slowest - pace), pace, everything / pp, steady, stretch * share)


def whole_pace(case: Case, policies: Policies, times: Times) -> Floats:
    """The shortest slowest stage that lets all stages hold all layers, each a whole number of them, and in every chunk
    of an interleaved stage as many. Where layers are of several kinds, nothing is said."""
    if len(case.model.kinds) != 1:
        return np.zeros(len(policies))
    layer, embedding, head = (unit.total for unit in times.units)
    pp, layers = policies.pp.astype(np.float64), float(case.model.layers)
    # where the stack's own split has unequal chunks it is allowed all the same
    unit = np.where(case.model.layers % (policies.pp * policies.vpp) == 0, policies.vpp, 1).astype(np.float64)
    each, best = np.floor(layers / pp / unit), np.full(len(policies), np.inf)
    for more in range(-2, 4):
        for end in (0.0 * head, embedding, head, embedding + head):
            pace = np.maximum(each + more, 0.0) * unit * layer + end
            holds = _room(pace, layer * unit, embedding, head, pp) * unit >= layers
            best = np.where(holds, np.minimum(best, pace), best)
    # none of those may do: then the least that is known is the mean
    return np.where(np.isfinite(best), best * (1.0 - ROUNDING), 0.0)


def _room(pace: Floats, unit: Floats, embedding: Floats, head: Floats, pp: Floats) -> Floats:
    """Units that stages of this length hold together; the first and the last also hold an end of the model."""
    inner = np.floor(pace / unit + ROUNDING) * np.maximum(pp - 2.0, 0.0)
    ends = np.floor((pace - embedding) / unit + ROUNDING) + np.floor((pace - head) / unit + ROUNDING)
    one = np.floor((pace - embedding - head) / unit + ROUNDING)
    fits = np.where(pp > 1, pace >= np.maximum(embedding, head) * (1.0 - ROUNDING), one >= 0)
    return np.where(fits, np.where(pp > 1, inner + ends, one), -1.0)


def _parts(index: Ints) -> Iterable[Ints]:
    return (index[begin : begin + TOGETHER] for begin in range(0, len(index), TOGETHER))
