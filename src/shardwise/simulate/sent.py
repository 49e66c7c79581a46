"""Bytes of every span of a timeline, from the one list of a step's messages."""

from dataclasses import replace

import numpy as np

from shardwise.fabric.calls import Call, calls_of
from shardwise.simulate.costs import Costs, Stream
from shardwise.tasks.engine import Floats
from shardwise.tasks.program import FORWARD, WEIGHT_GRADIENT, Program
from shardwise.work import Work


def with_sent_bytes(costs: Costs, program: Program, work: Work) -> Costs:
    """`work`: of the simulated policy, with every stage."""
    calls = calls_of(work)
    passes = [
        np.bincount(program.stage[chosen], minlength=program.stages).astype(np.float64)
        for chosen in (program.kind == FORWARD, (program.kind != FORWARD) & (program.kind != WEIGHT_GRADIENT))
    ]
    streams = {axis: _stream(stream, axis, calls, passes) for axis, stream in costs.streams.items()}
    grad, param = (_per_chunk(calls, lane, program) for lane in ("grad", "param"))
    return replace(costs, streams=streams, reduce_bytes=grad, gather_bytes=param)


def _stream(stream: Stream, axis: str, calls: list[Call], passes: list[Floats]) -> Stream:
    """Of one task of each piece, forward and backward."""
    sent = np.zeros((2, len(passes[0])))
    for call in calls:
        if call.lane == axis:
            sent[int(call.phase != "forward"), call.piece] += call.bytes * call.times
    forward, backward = (total / np.maximum(number, 1) for total, number in zip(sent, passes, strict=True))
    return replace(stream, bytes=(forward, backward))


def _per_chunk(calls: list[Call], lane: str, program: Program) -> Floats:
    """ranks x chunks, in a whole step."""
    found = np.zeros((program.pp, program.stages))
    for call in calls:
        if call.lane == lane:
            found[call.stage, call.piece] += call.bytes * call.times
    return np.asarray(np.take_along_axis(found, program.held, axis=1))
