"""ZB-H1 (arXiv:2401.10241): 1F1B with the backward in two pieces, so that weight gradients fill idle time.

Only the input gradient is on the way up the pipeline. Idle time (pp-1)(F+I-W), in the notation of DeepSeek-V3's table
(whole backward B = I+W) (pp-1)(F+B-2W): a third of 1F1B's when F = I = W. Fewer micro-batches than stages leave
pp-m pieces more without weight gradients to fill them. Peak memory is that of 1F1B's first stage, on every stage.
"""

from typing import Any

import numpy as np

from shardwise.plugins.schedules._contract import Corners, Orders, Schedule, looped
from shardwise.plugins.schedules._orders import alternate, pieces, with_weights


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    """Rank r puts off r weight gradients, which brings every rank to the activations rank 0 holds anyway."""
    forwards, inputs = pieces("F", micro_batches), pieces("I", micro_batches)
    return [with_weights(alternate(forwards, inputs, pp - 1 - rank), delay=rank) for rank in range(pp)]


def _corners(stage: Any, pp: Any, _vpp: Any, micro_batches: Any) -> Corners:
    held = np.minimum(micro_batches, pp)
    whole, deferred = np.minimum(micro_batches, pp - stage), np.minimum(micro_batches, stage + 1)
    return (whole, held - whole), (held - deferred, deferred)


SCHEDULE = Schedule(
    name="zero_bubble_h1",
    summary="1F1B whose weight gradients fill idle time: a third of its idle time in the same peak memory",
    in_flight=lambda stage, pp, _vpp, micro_batches: np.minimum(micro_batches, pp) + 0 * stage,
    idle=lambda pp, _vpp, micro_batches: (pp - 1.0 + np.maximum(pp - micro_batches, 0)) / 3.0,
    order=_order,
    stage=looped,
    splits_backward=True,
    corners=_corners,
)
