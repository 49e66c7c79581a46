"""The textbook pipeline, in whole time steps: a GPU may do one forward and one backward in the same step.

Micro-batch j reaches stage i in step i + j and its backward in step 2(pp-1) - i + j, so a stage runs 2(pp-1-i) forwards
ahead: twice the warm-up of 1F1B, which hides the transfers at the price of the activations. A GPU
that shares itself between the two gains nothing, so the idle time is 1F1B's.
"""

import numpy as np

from shardwise.plugins.schedules._contract import Orders, Schedule, looped
from shardwise.plugins.schedules._orders import alternate, pieces


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    forwards, backwards = pieces("F", micro_batches), pieces("B", micro_batches)
    return [alternate(forwards, backwards, 2 * (pp - 1 - rank)) for rank in range(pp)]


SCHEDULE = Schedule(
    name="overlapped",
    summary="a forward and a backward in each time step; twice the warm-up of 1F1B",
    in_flight=lambda stage, pp, _vpp, micro_batches: np.minimum(micro_batches, 2 * (pp - 1 - stage) + 1),
    idle=lambda pp, _vpp, _micro_batches: pp - 1.0,
    order=_order,
    stage=looped,
)
