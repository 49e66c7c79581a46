"""1F1B: after a warm-up each stage alternates one forward and one backward, so few micro-batches are in flight."""

import numpy as np

from shardwise.schedules._contract import Schedule

SCHEDULE = Schedule(
    name="1f1b",
    in_flight=lambda stage, pp, _vpp, micro_batches: np.minimum(micro_batches, pp - stage),
    idle=lambda pp, _vpp, _micro_batches: pp - 1.0,
    summary="one forward, one backward; idle (pp-1)/m of the busy time",
)
