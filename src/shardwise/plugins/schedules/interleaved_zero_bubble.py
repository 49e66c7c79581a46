"""Interleaved 1F1B with the backward in two pieces: ZB-H1 (arXiv:2401.10241) on vpp chunks per stage.

torch calls it ScheduleInterleavedZeroBubble. The warm-up on stage s is (vpp-1)pp + pp-s-1 chunks, stage s puts off s
weight gradients, so every stage holds the same. Idle time (pp-1)(F+I-W) of a chunk: a third of the interleaved
schedule's when F = I = W.
"""

from typing import Any

import numpy as np

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Corners, Orders, Schedule, looped
from shardwise.plugins.schedules._orders import alternate, rounds, with_weights


def _order(pp: int, vpp: int, micro_batches: int) -> Orders:
    forwards = rounds("F", pp, micro_batches, range(vpp))
    inputs = rounds("I", pp, micro_batches, range(vpp - 1, -1, -1))
    return [with_weights(alternate(forwards, inputs, pp - 1 - rank + (vpp - 1) * pp), delay=rank) for rank in range(pp)]


def _corners(stage: Any, pp: Any, vpp: Any, micro_batches: Any) -> Corners:
    held = np.minimum(micro_batches, pp)
    return (held - stage / vpp, stage / vpp), (held - (stage + 1) / vpp, (stage + 1) / vpp)


SCHEDULE = Schedule(
    name="interleaved_zero_bubble",
    needs=Needs(chunks="many", multiple_of_pp=True),
    summary="interleaved 1F1B whose weight gradients fill idle time: a third of its idle time",
    in_flight=lambda stage, pp, vpp, micro_batches: np.minimum(micro_batches * vpp, vpp * pp) / vpp + 0 * stage,
    idle=lambda pp, vpp, _micro_batches: (pp - 1.0) / (3.0 * vpp),
    order=_order,
    stage=looped,
    splits_backward=True,
    corners=_corners,
)
