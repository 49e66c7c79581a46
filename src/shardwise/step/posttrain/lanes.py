"""The course of a few steps, to be drawn: what rollout and trainer do over time, and the answers between them."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heapreplace

from msgspec import Struct

from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.phases import PosttrainPhases, RolloutPrice
from shardwise.step.posttrain.staleness import SHOWN, Ages

ROLLOUT, TRAINER = "rollout", "trainer"
POINTS = 160
"""of the flow that are kept"""


class LaneTask(Struct, frozen=True, kw_only=True):
    lane: str
    """rollout or trainer"""
    phase: str
    step: int
    start_s: float
    end_s: float


class FlowPoint(Struct, frozen=True, kw_only=True):
    at_s: float
    in_flight: int
    """answers that engines work on"""
    waiting: int
    """complete, not yet trained"""


class StepCourse(Struct, frozen=True, kw_only=True):
    seconds: float
    tasks: Sequence[LaneTask]
    flow: Sequence[FlowPoint]
    slots: int
    """answers that can be in flight"""


def course_of(job: PosttrainJob, rollout: RolloutPrice, phases: PosttrainPhases, ages: Ages | None) -> StepCourse:
    """`ages`: the simulation of a layout whose sides work at once; None where they work in turn."""
    if ages is not None and ages.updates:
        return _at_once(job, rollout, phases, ages)
    slots = min(rollout.running * rollout.sides.replicas, job.sequences) if job.rule.rolls_out else 0
    tasks, flow, now = list[LaneTask](), list[FlowPoint](), 0.0
    for step in range(SHOWN):
        if slots:
            ends = _ends(job, slots, phases.rollout_s)
            tasks.append(LaneTask(lane=ROLLOUT, phase="rollout", step=step, start_s=now, end_s=now + phases.rollout_s))
            flow += [
                FlowPoint(at_s=now + end, in_flight=min(slots, job.sequences - done), waiting=done)
                for done, end in enumerate(ends, start=1)
            ]
            now += phases.rollout_s
        tasks += _trained(phases, step, now)
        now = tasks[-1].end_s
        if slots:
            flow.append(FlowPoint(at_s=now, in_flight=0, waiting=0))
    return StepCourse(seconds=now, tasks=tasks, flow=_thinned(flow), slots=slots)


def _at_once(job: PosttrainJob, rollout: RolloutPrice, phases: PosttrainPhases, ages: Ages) -> StepCourse:
    assert rollout.steady is not None
    first, last = ages.updates[0][0], ages.updates[-1][1]
    flow = [
        FlowPoint(at_s=at - first, in_flight=running, waiting=waiting)
        for at, running, waiting in ages.flow if first <= at <= last
    ]  # fmt: skip
    tasks = [LaneTask(lane=ROLLOUT, phase="rollout", step=0, start_s=0.0, end_s=last - first)]
    for step, (start, _) in enumerate(ages.updates):
        tasks += _trained(phases, step, start - first)
    slots = min(rollout.steady.running * rollout.sides.replicas, (rollout.sides.lag + 1) * job.sequences)
    return StepCourse(seconds=last - first, tasks=tasks, flow=_thinned(flow), slots=slots)


def _trained(phases: PosttrainPhases, step: int, start: float) -> Iterator[LaneTask]:
    for phase, seconds in (
        ("reward", phases.reward_s), ("log-probs", phases.log_probs_s), ("update", phases.update_s),
        ("weight sync", phases.sync_s), ("other", phases.other_s),
    ):  # fmt: skip
        if seconds:
            yield LaneTask(lane=TRAINER, phase=phase, step=step, start_s=start, end_s=start + seconds)
            start += seconds


def _ends(job: PosttrainJob, slots: int, seconds: float) -> list[float]:
    """When each answer of a step is complete, the last one at `seconds`."""
    lengths = job.answers.tolist()
    running = lengths[:slots]
    heapify(running)
    ends = []
    for length in lengths[slots:]:
        ends.append(running[0])
        heapreplace(running, running[0] + length)
    ends += sorted(running)
    return [seconds * end / ends[-1] for end in ends]


def _thinned(flow: Sequence[FlowPoint]) -> Sequence[FlowPoint]:
    if len(flow) <= POINTS:
        return flow
    return [flow[round(place * (len(flow) - 1) / (POINTS - 1))] for place in range(POINTS)]
