"""ZB-V (arXiv:2401.10241, section 6): two chunks per rank laid out as a V, weight gradients fill all idle time.

Published as zero bubble when F = I = W and at least 2pp-1 micro-batches run: each rank is busy without a gap from its
first piece to its last. But rank r starts (and ends) r chunk-forwards late, so a step that ends with one optimizer step
on all ranks is (pp-1)F longer than its work; only an optimizer that need not wait for the others (the paper validates
its step afterwards) hides that. `idle` counts it: (pp-1)/6 of a rank's forward and backward, F being one of its six
pieces. With few micro-batches the V is not full: 4(pp-1) - 2(m-1) pieces.
Peak memory: 2pp chunks, which is pp whole stages as in 1F1B, on every rank.
"""

from typing import Any

import numpy as np

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Action, Corners, Orders, Schedule, folded
from shardwise.plugins.schedules._orders import F0, F1, I0, I1, W0, W1, Tape


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    return [_rank_order(rank, pp, micro_batches) for rank in range(pp)]


def _rank_order(rank: int, pp: int, micro_batches: int) -> list[Action]:
    """Fewer micro-batches than fill the V run the order of a full one without those that do not exist."""
    full = max(micro_batches, 2 * pp - 1)
    below = pp - rank
    tape = Tape()
    tape.repeat(2 * below - 1, F0)
    tape.repeat(rank, F1, F0)
    tape.repeat(below, F1, I1, W1)
    while tape.count("F", 1) < full:
        if tape.count("F", 0) < full:
            tape.repeat(1, F0)
        tape.repeat(1, I0, W0, F1, I1, W1)
    tape.repeat(rank, I0, I1)
    tape.repeat(below, I0, W0)
    tape.repeat(full - tape.count("W", 1), W1)
    tape.repeat(full - tape.count("W", 0), W0)
    return [action for action in tape.actions if action.micro_batch < micro_batches]


def _in_flight(stage: Any, pp: Any, _vpp: Any, micro_batches: Any) -> Any:
    return np.minimum(np.minimum(micro_batches + 1 + stage, 2 * micro_batches), 2 * pp) / 2.0


def _corners(stage: Any, pp: Any, vpp: Any, micro_batches: Any) -> Corners:
    """The third is where the last forwards are through: `stage` input gradients of both chunks wait, and one more."""
    held = _in_flight(stage, pp, vpp, micro_batches)
    missing = np.maximum(2 * pp - 1 - micro_batches, 0)
    left = pp - missing - stage
    deferred = np.clip(stage - missing, 0, None) + np.clip(pp - missing, 0, stage) + (left > 0)
    return (held, 0 * held), (held - 0.5, 0 * held + 0.5), (np.maximum(left - 1, 0) / 2.0, deferred / 2.0)


SCHEDULE = Schedule(
    name="zb_v",
    needs=Needs(chunks="two"),
    summary="two chunks in a V; no idle time but the staggered start, memory of 1F1B",
    in_flight=_in_flight,
    idle=lambda pp, _vpp, micro_batches: np.maximum(pp - 1.0, 4 * (pp - 1) - 2 * (micro_batches - 1)) / 6.0,
    order=_order,
    stage=folded,
    splits_backward=True,
    corners=_corners,
)
