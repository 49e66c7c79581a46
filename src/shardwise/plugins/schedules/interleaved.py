"""Interleaved 1F1B: each stage holds vpp chunks of layers, which divides the idle time by vpp.

Rounds of pp micro-batches go through all chunks before the next round starts: the "depth-first" order of
arXiv:2211.05953, so there is no looped depth-first schedule besides this one. Megatron's warm-up on stage s is
2(pp-s-1) + (vpp-1)pp chunks (arXiv:2104.04473, section 2.2); one more is running.
"""

import numpy as np

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Orders, Schedule, looped
from shardwise.plugins.schedules._orders import alternate, rounds


def _order(pp: int, vpp: int, micro_batches: int) -> Orders:
    forwards = rounds("F", pp, micro_batches, range(vpp))
    backwards = rounds("B", pp, micro_batches, range(vpp - 1, -1, -1))
    return [alternate(forwards, backwards, 2 * (pp - rank - 1) + (vpp - 1) * pp) for rank in range(pp)]


SCHEDULE = Schedule(
    name="interleaved",
    needs=Needs(chunks="many", multiple_of_pp=True),
    summary="vpp chunks per stage; idle time divided by vpp, more transfers and more in flight",
    in_flight=lambda stage, pp, vpp, micro_batches: (
        np.minimum(micro_batches * vpp, 2 * (pp - stage - 1) + (vpp - 1) * pp + 1) / vpp
    ),
    idle=lambda pp, vpp, _micro_batches: (pp - 1.0) / vpp,
    order=_order,
    stage=looped,
)
