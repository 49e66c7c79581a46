"""Bytes of every span of a timeline, from the one list of a step's messages."""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.calls import lane_bytes_of
from shardwise.step.tasks.program import FORWARD, WEIGHT_GRADIENT, Program
from shardwise.work import Work


@dataclass(frozen=True)
class SentBytes:
    task: dict[str, tuple[Floats, Floats]]
    """by lane, per piece: of one forward, and of one backward"""
    reduced: Floats
    """ranks x chunks, in a whole step: gradients"""
    gathered: Floats
    """and parameters"""
    handover: float
    """one activation or gradient to another stage"""

    def of_task(self, lane: str) -> tuple[Floats, Floats]:
        nothing = np.zeros(int(self.reduced.size))
        return self.task.get(lane, (nothing, nothing))


def sent_bytes(program: Program, work: Work, rank_layers: Ints | None) -> SentBytes:
    """`work`: of the simulated policy, with every stage; `rank_layers`: of each, where the program deals them out
    otherwise."""
    passes = [
        np.bincount(program.stage[chosen], minlength=program.stages).astype(np.float64)
        for chosen in (program.kind == FORWARD, (program.kind != FORWARD) & (program.kind != WEIGHT_GRADIENT))
    ]
    found = lane_bytes_of(work, rank_layers)
    nothing = np.zeros(program.held.shape)

    def each(lane: str, *, forward: bool) -> Floats:
        total = found.get((lane, forward), nothing)
        by_piece = np.bincount(program.held.ravel(), weights=total.ravel(), minlength=program.stages)
        return np.asarray(by_piece / np.maximum(passes[not forward], 1))

    grad, param = (
        sum((found.get((lane, way), nothing) for way in (True, False)), start=nothing) for lane in ("grad", "param")
    )
    return SentBytes(
        task={lane: (each(lane, forward=True), each(lane, forward=False)) for lane, _ in found},
        reduced=grad,
        gathered=param,
        handover=float(np.asarray(work.handover.bytes)[0]),
    )
