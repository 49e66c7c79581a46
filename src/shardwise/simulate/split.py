"""The best layers for each stage, and how many of them recompute: exact, by dynamic programming.

Step time follows the closed form: (m - k) times the slowest stage plus k times all of them, k being the idle time of
the schedule over pp - 1. For a bound on the slowest stage the least sum is a shortest path over (stage, layers so far);
bounds are tried from the smallest that works upwards until the bound alone costs more than the best found.
"""

from dataclasses import dataclass
from dataclasses import replace as with_

import numpy as np
from msgspec.structs import replace

from shardwise.calibrate.profile import Profile
from shardwise.case import case_of
from shardwise.estimate.closed_form import estimate
from shardwise.schedules import schedules
from shardwise.simulate.segments import Segments, segments_of
from shardwise.simulate.step import Simulation, composed, simulate
from shardwise.software import Stack
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.tasks.engine import Floats, Ints

TIE = 1e-6
"""weight of a stage's square beside its time: decides between equals only"""


@dataclass(frozen=True)
class Split:
    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    """layers of each stage that are computed again in the backward, so that the stage fits"""
    stage_s: tuple[float, ...]
    """one micro-batch, forward and backward"""
    peak_bytes: tuple[float, ...]
    fits: bool


@dataclass(frozen=True)
class Splits:
    even: Split
    """as the stack deals layers out"""
    best: Split | None
    """nothing when no split fits"""
    limit_bytes: float


def best_split(
    model: Model,
    cluster: Cluster,
    job: Job,
    policy: Policy,
    stack: Stack,
    *,
    headroom: float = 1.0,
    profile: Profile | None = None,
) -> Splits:
    """Recompute of the policy is ignored: each stage recomputes as many layers as it must, and no more."""
    if not 0 < headroom <= 1:
        raise ValueError(f"headroom: {headroom:g} is out of range; write a share of the memory above 0 and at most 1")
    plain = replace(policy, recompute="none", recompute_layers=-1)
    case = case_of(model, cluster, job, stack, profile)
    found = estimate(case, Policies.of([plain]), every_stage=True)
    limit = min(headroom * cluster.gpu.memory_bytes, cluster.gpu.memory_bytes - stack.memory.reserve_bytes)
    segments = segments_of(case, plain, limit)
    given = np.concatenate([[0], np.cumsum(found.work.stages.layers[0])]).astype(np.int64)
    micro = float(found.work.layout.micro_batches[0])
    idle = float(schedules()[policy.schedule].idle(policy.pp, policy.vpp, micro))
    cuts = _search(segments.seconds, micro, idle / max(policy.pp - 1, 1))
    return Splits(
        even=_split(segments, given),
        best=None if cuts is None else _split(segments, cuts),
        limit_bytes=limit,
    )


def simulate_split(
    model: Model, cluster: Cluster, job: Job, policy: Policy, stack: Stack, split: Split, profile: Profile | None = None
) -> Simulation:
    """The step with these layers on each stage, so many of them recomputed."""
    case = case_of(model, cluster, job, stack, profile)
    plain, full = (
        simulate(case, replace(policy, recompute=recompute, recompute_layers=-1), rank_layers=split.layers)
        for recompute in ("none", "full")
    )
    if not any(split.recomputed):
        return plain
    program = plain.program
    rank_share = np.array(split.recomputed) / np.maximum(split.layers, 1)
    share = np.zeros(program.stages)
    for chunk in range(program.held.shape[1] - 1, -1, -1):
        share[program.held[:, chunk]] = rank_share
    a, b = plain.costs, full.costs
    held = with_(
        a.held,
        saved=a.held.saved + rank_share[:, None] * (b.held.saved - a.held.saved),
        once=np.where(rank_share > 0, b.held.once, a.held.once),
    )
    costs = with_(
        a,
        forward=a.forward + share * (b.forward - a.forward),
        input_gradient=a.input_gradient + share * (b.input_gradient - a.input_gradient),
        recompute=share * b.recompute,
        held=held,
    )
    return composed(plain.policy, plain.closed, program, costs)


def _split(segments: Segments, cuts: Ints) -> Split:
    low, high = cuts[:-1], cuts[1:]
    stage = np.arange(len(low))
    repeated = segments.recomputed[stage, low, high]
    fits = bool(np.isfinite(segments.seconds[stage, low, high]).all())
    return Split(
        layers=tuple((high - low).tolist()),
        recomputed=tuple(repeated.astype(int).tolist()),
        stage_s=tuple(segments.any_seconds[stage, low, high].tolist()),
        peak_bytes=tuple(segments.bytes[stage, low, high].tolist()),
        fits=fits,
    )


def _search(seconds: Floats, micro_batches: float, share: float) -> Ints | None:
    """Cuts of the split with the least step time; `seconds` is stages x first layer x end."""
    bounds = np.unique(seconds[np.isfinite(seconds)])
    least = _shortest(seconds, np.inf)
    if least is None:
        return None
    best_cuts, floor = least[1], least[0]
    best = _step(seconds, best_cuts, micro_batches, share)
    for bound in bounds[_first_that_works(seconds, bounds) :]:
        if (micro_batches - share) * bound + share * floor >= best:
            break
        found = _shortest(seconds, float(bound))
        if found is not None and (step := _step(seconds, found[1], micro_batches, share)) < best:
            best, best_cuts = step, found[1]
    slowest = float(seconds[np.arange(len(seconds)), best_cuts[:-1], best_cuts[1:]].max())
    # many splits are as good: of those, the one whose stages are most alike
    alike = _shortest(np.where(seconds <= slowest, seconds * (1.0 + TIE * seconds / slowest), np.inf), np.inf)
    return best_cuts if alike is None else alike[1]


def _first_that_works(seconds: Floats, bounds: Floats) -> int:
    low, high = 0, len(bounds) - 1
    while low < high:
        middle = (low + high) // 2
        if _shortest(seconds, float(bounds[middle])) is None:
            low = middle + 1
        else:
            high = middle
    return low


def _step(seconds: Floats, cuts: Ints, micro_batches: float, share: float) -> float:
    stages = seconds[np.arange(len(cuts) - 1), cuts[:-1], cuts[1:]]
    return float((micro_batches - share) * stages.max() + share * stages.sum())


def _shortest(seconds: Floats, bound: float) -> tuple[float, Ints] | None:
    """The least sum of stages none of which is above the bound, and its cuts."""
    stages, ends = len(seconds), seconds.shape[1]
    allowed = np.where(seconds <= bound, seconds, np.inf)
    reached = allowed[0, 0]
    came_from = np.zeros((stages, ends), dtype=np.int64)
    for stage in range(1, stages):
        through = reached[:, None] + allowed[stage]
        came_from[stage] = np.argmin(through, axis=0)
        reached = through[came_from[stage], np.arange(ends)]
    if not np.isfinite(reached[-1]):
        return None
    cuts = np.zeros(stages + 1, dtype=np.int64)
    cuts[-1] = ends - 1
    for stage in range(stages - 1, 0, -1):
        cuts[stage] = came_from[stage, cuts[stage + 1]]
    return float(reached[-1]), cuts
