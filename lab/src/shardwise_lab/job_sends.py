"""What a training of the runtime sends in each of its steps: calls of gloo, by axis, with who waits for whom.

Collectives are the planner's (`fabric/calls.py`), or of a strategy its own events on ghosts (`sync/_cost.py`). Two
small sums over all ranks, of the loss and of the gradient's norm, steer the loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.calls import STAGE_PAIRS, PlacedMessage, calls_of, paired_stages
from shardwise.fabric.place import Seats
from shardwise.fabric.price import members_of
from shardwise.plugins.collectives import collective
from shardwise.plugins.sync._cost import trace_of
from shardwise.plugins.sync._events import SyncEvent
from shardwise.plugins.sync._named import strategy_named
from shardwise.spec.policy import Policies
from shardwise.step.estimate.synced.traffic import layout_of_model
from shardwise.work import work_of
from shardwise.work.case import training_of
from shardwise_lab.cases import RINGS
from shardwise_lab.jobs import LabJob
from shardwise_lab.sends import WireSends, gloo_sends, sends_of

CONTROL = "control"
DOUBLE = 8


@dataclass(frozen=True)
class JobCall:
    axis: str
    lane: str
    """calls of one lane wait for one another; other stages', or the other direction, do not"""
    op: str
    sends: WireSends
    """of all ranks that call it at the same time"""
    times: float
    rounds: int
    """messages that wait for one another"""


def step_calls(job: LabJob, steps: int) -> list[list[JobCall]]:
    """Of each of the first so many steps."""
    ranks = job.policy.gpus
    steering = list(_control(job, ranks))
    if job.policy.sync:
        strategy, layout = strategy_named(job.policy.sync), layout_of_model(job.model)
        told = trace_of(strategy, layout, job.policy.dp, steps).steps
        return [[*(_of_event(event, job.policy.dp) for event in events), *steering] for events in told]
    training = training_of(job.model, job.job, job.stack)
    calls = calls_of(work_of(training, Policies.of([job.policy]), every_stage=True))
    seats = Seats(job.policy, tuple(job.policy.order.split("-")), np.arange(ranks), "rank", np.arange(ranks))
    each = [*(found for call in calls for found in _of_call(seats, call)), *steering]
    return [each] * steps


def _control(job: LabJob, ranks: int) -> Iterator[JobCall]:
    """Loss with two flags; the norm, of a strategy one for each worker."""
    for count in (3, job.policy.dp if job.policy.sync else 1):
        sends = gloo_sends("all_reduce", DOUBLE * count, ranks, DOUBLE)
        yield JobCall(CONTROL, "", "all_reduce", sends, 1.0, rounds_of("all_reduce", ranks))


def _of_call(seats: Seats, call: PlacedMessage) -> Iterator[JobCall]:
    members, pp = members_of(seats, call), seats.policy.pp
    lane = str(call.stage)
    if call.target >= 0:
        pairs = zip(members[:, call.stage].tolist(), members[:, call.target].tolist(), strict=True)
        sends = sends_of((a, b, call.bytes, 1.0) for a, b in pairs)
        yield JobCall(call.axis, f"{call.stage}>{call.target}", "send", sends, call.count, 1)
        return
    if call.group in STAGE_PAIRS:
        # both ends tell of it
        if call.stage != min(paired_stages(call.group, call.stage, pp)):
            return
    elif pp > 1 and call.stage >= 0:
        members = members[seats.stage[members[:, 0]] == call.stage]
    size = members.shape[1]
    here = gloo_sends(call.op, call.bytes, size)
    if call.op == "send" and call.phase == "backward":
        # keys, values and their gradients go back the way they came
        here = WireSends(here.target, here.source, here.bytes, here.count, here.how)
    yield JobCall(call.axis, lane, call.op, here.placed(members), call.count, rounds_of(call.op, size))


def rounds_of(op: str, ranks: int) -> int:
    """Messages of gloo's that wait for one another."""
    return collective("ring").rounds(RINGS[op], ranks, 1) if op in RINGS else 1


def _of_event(event: SyncEvent, workers: int) -> JobCall:
    """The mean of all workers is left to gloo; everything else goes from member to member as the event says."""
    size = event.size
    members = _members(size, event.stride, workers)
    if event.op == "all_reduce" and event.stride == 1 and size == workers:
        return JobCall("sync", "", event.op, gloo_sends(event.op, event.bytes, size), 1.0, rounds_of(event.op, size))
    chained = event.op == "all_reduce" and event.algorithm == "ring"
    often = 2 * (size - 1) if chained else 1
    rows = []
    for place, sent in enumerate(event.sent):
        peers = event.peers[place] if event.peers else tuple(p for p in range(size) if p != place)
        rows += [(place, peer, sent / len(peers) / often, float(often)) for peer in peers if sent]
    rounds = often if chained else size - 1 if event.op == "broadcast" else 1
    return JobCall("sync", "", event.op, sends_of(rows).placed(members), 1.0, rounds)


def _members(size: int, stride: int, workers: int) -> Ints:
    """Groups x workers: members are so far apart."""
    first = [block + place for block in range(0, workers, size * stride) for place in range(stride)]
    return np.array(first)[:, None] + stride * np.arange(size)[None, :]


def payload(calls: list[JobCall], ranks: int) -> Floats:
    """Bytes of a step from each rank to each."""
    return sum((call.times * call.sends.matrix(ranks) for call in calls), np.zeros((ranks, ranks)))
