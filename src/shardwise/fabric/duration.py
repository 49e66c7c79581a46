"""How long flows that start together take: exact where it can be, else between two bounds that are told."""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.fold import classes_of
from shardwise.fabric.links import busy_seconds
from shardwise.fabric.solver import Flows, finish_times, max_min

EXACT = 2_000
"""classes of flows up to which the event loop runs"""
TOGETHER = 5e-3
"""flows that end within this share of the time passed end together"""
ALIKE = 1e-6


@dataclass(frozen=True)
class Duration:
    seconds: float
    least: float
    """no sooner than the busiest link has carried its bytes; less than `seconds` only where too many flows differ for
    the event loop: then `seconds` is the slowest flow at the rates all have together, which ending flows can only
    better"""

    @property
    def exact(self) -> bool:
        return self.seconds == self.least


def duration_of(flows: Flows, capacity: Floats) -> Duration:
    """Until the last flow is over."""
    if not len(flows) or not flows.bytes.any():
        return Duration(0.0, 0.0)
    with np.errstate(divide="ignore"):
        least = float(busy_seconds(flows.link_bytes(len(capacity)), capacity).max())
    if not np.isfinite(least):
        raise ValueError("fabric: a flow has no path left (a failed link on its only one)")
    classes, room, _ = classes_of(flows, capacity)
    rates = max_min(classes.links, room, weight=classes.weight)
    most = float((classes.bytes / rates).max())
    if most <= least * (1.0 + ALIKE):
        return Duration(least, least)
    if len(classes) > EXACT:
        return Duration(most, least)
    seconds = float(finish_times(classes, room, within=TOGETHER).max())
    return Duration(seconds, seconds)
