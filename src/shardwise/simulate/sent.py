"""Bytes of every span of a timeline, from the one list of a step's messages."""

from dataclasses import replace

import numpy as np

from shardwise.fabric.calls import lane_bytes_of
from shardwise.simulate.costs import Costs, Stream
from shardwise.tasks.engine import Floats
from shardwise.tasks.program import FORWARD, WEIGHT_GRADIENT, Program
from shardwise.work import Work


def with_sent_bytes(costs: Costs, program: Program, work: Work) -> Costs:
    """`work`: of the simulated policy, with every stage."""
    passes = [
        np.bincount(program.stage[chosen], minlength=program.stages).astype(np.float64)
        for chosen in (program.kind == FORWARD, (program.kind != FORWARD) & (program.kind != WEIGHT_GRADIENT))
    ]
    found = {lane: np.zeros((2, program.pp, program.stages)) for lane in (*costs.streams, "grad", "param")}
    for stage, piece, totals in lane_bytes_of(work):
        for (lane, forward), total in totals.items():
            if lane in found:
                found[lane][int(not forward), stage, piece] += total
    streams = {axis: _stream(stream, found[axis].sum(axis=1), passes) for axis, stream in costs.streams.items()}
    grad, param = (
        np.take_along_axis(found[lane].sum(axis=0), program.held, axis=1) for lane in ("grad", "param")
    )  # ranks x chunks, in a whole step
    return replace(costs, streams=streams, reduce_bytes=grad, gather_bytes=param)


def _stream(stream: Stream, sent: Floats, passes: list[Floats]) -> Stream:
    """Of one task of each piece, forward and backward."""
    forward, backward = (total / np.maximum(number, 1) for total, number in zip(sent, passes, strict=True))
    return replace(stream, bytes=(forward, backward))
