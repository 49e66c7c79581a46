"""What every pipeline schedule states about itself, for scalars and arrays alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Schedule(Struct, frozen=True, kw_only=True):
    name: str
    in_flight: Callable[[Any, Any, Any, Any], Any]
    """(stage, pp, vpp, micro_batches) -> micro-batches whose activations a stage holds at its fullest moment, in units
    of the whole stage (a chunk of an interleaved stage counts 1/vpp)"""
    idle: Callable[[Any, Any, Any], Any]
    """(pp, vpp, micro_batches) -> idle time of a stage, in forward-plus-backward times of one micro-batch there"""
    needs_chunks: bool = False
    summary: str = ""


def bubble_share(schedule: Schedule, pp: Any, vpp: Any, micro_batches: Any) -> Any:
    """Idle time as a share of the whole step: (N-1)/(m+N-1) for 1F1B; of the busy time alone it is (N-1)/m."""
    idle = schedule.idle(pp, vpp, micro_batches)
    return idle / (micro_batches + idle)
