"""Interleaved 1F1B: each stage holds vpp chunks of layers, which divides the idle time by vpp.

Megatron's warm-up on stage s is 2(pp-s-1) + (vpp-1)pp chunks (arXiv:2104.04473, section 2.2); one more is running.
"""

import numpy as np

from shardwise.schedules._contract import Schedule

SCHEDULE = Schedule(
    name="interleaved",
    in_flight=lambda stage, pp, vpp, micro_batches: (
        np.minimum(micro_batches * vpp, 2 * (pp - stage - 1) + (vpp - 1) * pp + 1) / vpp
    ),
    idle=lambda pp, vpp, _micro_batches: (pp - 1.0) / vpp,
    needs_chunks=True,
    summary="vpp chunks per stage; idle time divided by vpp, more transfers and more in flight",
)
