"""1F1B: after a warm-up each stage alternates one forward and one backward, so few micro-batches are in flight."""

import numpy as np

from shardwise.plugins.schedules._contract import Orders, Schedule, looped
from shardwise.plugins.schedules._orders import alternate, pieces


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    forwards, backwards = pieces("F", micro_batches), pieces("B", micro_batches)
    return [alternate(forwards, backwards, pp - 1 - rank) for rank in range(pp)]


SCHEDULE = Schedule(
    name="1f1b",
    summary="one forward, one backward; idle (pp-1)/m of the busy time",
    in_flight=lambda stage, pp, _vpp, micro_batches: np.minimum(micro_batches, pp - stage),
    idle=lambda pp, _vpp, _micro_batches: pp - 1.0,
    order=_order,
    stage=looped,
)
