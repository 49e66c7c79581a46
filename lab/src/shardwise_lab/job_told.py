"""A training of the runtime beside its prediction: seconds in messages by axis, bytes of every port."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from shardwise.arrays import Floats
from shardwise_lab.emulated import Emulated
from shardwise_lab.facts import LabAxis, LabRow
from shardwise_lab.job_sends import CONTROL, JobCall, payload, step_calls
from shardwise_lab.order import JobStep, LabWorld
from shardwise_lab.predict import Predicted, blind_sends, laid
from shardwise_lab.sampler import Samples
from shardwise_lab.sends import joined
from shardwise_lab.told import bytes_error, port_rows_of

WARM_UP = 1
"""steps that ranks make before those that are told"""
MOST_TIMES = 100
MOST_STEPS = MOST_TIMES + WARM_UP
AROUND_S = 0.005
"""after the last step, in which acknowledgements still come"""


@dataclass(frozen=True)
class JobSays:
    """Of all steps that are told, each."""

    axes_s: tuple[dict[str, float], ...]
    link_bytes: Floats
    """of a mean step"""
    sent_bytes: float
    blind_s: float
    calls: dict[str, float]
    """messages and collectives of a mean step, by axis"""

    @property
    def seconds(self) -> float:
        return mean(sum(axes.values()) for axes in self.axes_s)

    def predicted(self, ranks: int) -> Predicted:
        return Predicted(self.seconds, self.link_bytes, np.full(ranks, self.seconds))


def checked_job(world: LabWorld) -> LabWorld:
    """Refuses steps in which nothing is sent: some strategies exchange now and then."""
    assert world.job is not None
    said = step_calls(world.job, MOST_STEPS)
    sending = [number for number, calls in enumerate(said) if any(call.axis != CONTROL for call in calls)]
    first = next((number for number in sending if number >= WARM_UP), None)
    if first is None or first >= world.steps + WARM_UP:
        need = f"write --times {first}" if first is not None and first <= MOST_TIMES else "let it exchange more often"
        raise ValueError(
            f"times: {world.job.text[:60]} sends nothing in its first {world.steps + WARM_UP} steps; {need}"
        )
    return world


def job_says(fabric: Emulated, world: LabWorld, message_s: float) -> JobSays:
    assert world.job is not None
    order, ranks = world.order, len(world.order)
    steps = step_calls(world.job, world.steps + WARM_UP)[WARM_UP:]
    nothing = np.zeros(len(fabric.tree.links))
    kinds: dict[int, tuple[dict[str, float], Floats, float, float]] = {}
    for calls in steps:
        if id(calls) not in kinds:
            each = [laid(fabric, call.sends, order, call.rounds * message_s) for call in calls]
            on_links = sum((call.times * found.link_bytes for call, found in zip(calls, each, strict=True)), nothing)
            kinds[id(calls)] = (
                _axes(calls, each, *_handed_on(fabric, calls, world, message_s)), on_links,
                float(payload(calls, ranks).sum()),
                sum(_axes(calls, [_blind(fabric, call, message_s) for call in calls], 0.0, 1.0).values()),
            )  # fmt: skip
    told = [kinds[id(calls)] for calls in steps]
    counts: dict[str, float] = defaultdict(float)
    for calls in steps:
        for call in calls:
            counts[call.axis] += call.times / len(steps)
    return JobSays(
        tuple(found[0] for found in told), np.mean([found[1] for found in told], axis=0),
        mean(found[2] for found in told), mean(found[3] for found in told), dict(counts),
    )  # fmt: skip


def _axes(calls: Sequence[JobCall], each: Sequence[Predicted], handed_on: float, warm: float) -> dict[str, float]:
    """Seconds of an axis: calls of one lane one after another, lanes beside each other. A full pipeline hands on and
    back at once (`handed_on`: seconds of all of a micro-batch together); while it fills (`warm`, a share) only on."""
    lanes: dict[tuple[str, str], float] = defaultdict(float)
    for call, says in zip(calls, each, strict=True):
        if call.axis != CONTROL:
            seconds = says.seconds
            if call.op == "send" and call.axis == "pp":
                seconds = warm * seconds + (1.0 - warm) * max(handed_on, seconds)
            lanes[call.axis, call.lane] += call.times * seconds
    found: dict[str, float] = {}
    for (axis, _), seconds in lanes.items():
        found[axis] = max(found.get(axis, 0.0), seconds)
    return found


def _blind(fabric: Emulated, call: JobCall, message_s: float) -> Predicted:
    return Predicted(blind_sends(fabric, call.sends, call.rounds * message_s), np.zeros(0), np.zeros(0))


def _handed_on(fabric: Emulated, calls: Sequence[JobCall], world: LabWorld, message_s: float) -> tuple[float, float]:
    """(seconds of what all stages send for a micro-batch when they send at once, share of micro-batches that fill)."""
    sends = [call.sends for call in calls if call.op == "send" and call.axis == "pp"]
    job = world.job
    if not sends or job is None:
        return 0.0, 1.0
    micros = job.job.global_batch // (job.policy.dp * job.policy.micro_batch)
    return laid(fabric, joined(sends), world.order, message_s).seconds, min((job.policy.pp - 1) / micros, 1.0)


def told_job(fabric: Emulated, world: LabWorld, says: JobSays, steps: Sequence[JobStep], samples: Samples) -> LabRow:
    assert world.job is not None
    ranks, turns = len(world.order), sorted({step.turn for step in steps})
    by_turn = [[step for step in steps if step.turn == turn] for turn in turns]
    seen = [_seen(each) for each in by_turn]
    steady = all(axes == says.axes_s[0] for axes in says.axes_s)
    usual = median if steady else mean
    axes = tuple(
        LabAxis(axis=axis, calls=says.calls[axis], predicted_s=mean(each.get(axis, 0.0) for each in says.axes_s),
                measured_s=usual([each.get(axis, 0.0) for each in seen]))
        for axis in dict.fromkeys(axis for each in says.axes_s for axis in each)
    )  # fmt: skip
    begin, end = min(s.start_s for s in steps), max(s.end_s for s in steps)
    sent = samples.between(begin, end + AROUND_S) / len(turns)
    ports = port_rows_of(fabric, says.link_bytes, np.asarray(sent, dtype=np.float64), samples.deepest(begin, end))
    measured = [sum(each.get(axis.axis, 0.0) for axis in axes) for each in seen]
    return LabRow(
        fabric=fabric.cluster.name, order=world.order, op=f"{world.job.text} step",
        bytes=round(says.sent_bytes / ranks),
        measured_s=usual(measured), turns_s=tuple(measured), predicted_s=says.seconds, blind_s=says.blind_s,
        rank_s=tuple(median(s.end_s - s.start_s for s in steps if s.rank == rank) for rank in range(ranks)),
        predicted_rank_s=(says.seconds,) * ranks, error=says.seconds / max(usual(measured), 1e-9) - 1.0,
        ring=False, ports=ports, bytes_error=bytes_error(ports, len(turns)), axes=axes,
        pressure=samples.pressure(begin, end), loss=by_turn[-1][0].loss,
    )  # fmt: skip


def _seen(steps: Sequence[JobStep]) -> dict[str, float]:
    """Seconds of each axis in one step, in the group or pair that was longest in messages: from when the last rank
    began to when the last was done, messages that were under way together counted once."""
    starts: dict[tuple[str, str], list[list[tuple[float, float]]]] = defaultdict(list)
    for step in steps:
        place: dict[tuple[str, str], int] = defaultdict(int)
        for message in step.messages:
            who = (message.axis, message.key)
            if place[who] == len(starts[who]):
                starts[who].append([])
            starts[who][place[who]].append((message.start_s, message.end_s))
            place[who] += 1
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for (axis, key), instances in starts.items():
        # messages of one group wait for one another, whatever they do
        group = key.partition(" ")[2] or key
        groups[axis, group] += [(max(s for s, _ in each), max(e for _, e in each)) for each in instances]
    found: dict[str, float] = {}
    for (axis, _), spans in groups.items():
        found[axis] = max(found.get(axis, 0.0), _covered(spans))
    return found


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Length of the union."""
    total, reached = 0.0, -np.inf
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return float(total)
