"""Has something changed, and does it last? Robust statistics over the last steps against those before."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats
from shardwise.measured.diagnose.pace import warm_up_of
from shardwise.measured.diagnose.records import StepGrid

LASTS = 16
"""steps that something must last before it is named: no flapping"""
MOSTLY = 0.8
"""of them that must show it"""
CROWDED = 0.8
"""of the time: then some process waits for a processor nearly always"""
MORE_CROWDED = 0.1
"""of the time more than before"""
HOPS = 4
"""threads that a message wakes on its way: the sender's two and the receiver's two; each may stand in line"""
SETTLED = 4
"""first steps that never count: compilation, allocator, first batches"""


@dataclass(frozen=True)
class Rise:
    """A level that rose and stayed."""

    place: int
    """of the first step of the new level"""
    before: float
    after: float

    @property
    def factor(self) -> float:
        return self.after / self.before if self.before > 0 else np.inf


def settled(grid: StepGrid) -> StepGrid:
    """Without the first steps, of which some are slow for reasons that pass."""
    slowest = grid.step_s.max(axis=0)
    return grid.after(max(warm_up_of(slowest.tolist()), min(SETTLED, grid.count // 4)))


def rise_of(values: Floats, least: float) -> Rise | None:
    """The moment after which a series stays above what it was by `least`, to its end; medians on both sides, and most
    steps of the later one above most of the earlier."""
    count = len(values)
    if count < 2 * LASTS:
        return None
    best, place = 0.0, 0
    middle = np.median(values)
    for at in range(LASTS, count - LASTS + 1):
        lower, upper = np.median(values[:at]), np.median(values[at:])
        saved = float(np.abs(values - middle).sum() - np.abs(values[:at] - lower).sum()
                      - np.abs(values[at:] - upper).sum())  # fmt: skip
        if upper > lower and saved > best:
            best, place = saved, at
    if not place:
        return None
    before, after = float(np.median(values[:place])), float(np.median(values[place:]))
    line = (before + after) / 2
    lasting = np.mean(values[place:] > line) >= MOSTLY and np.mean(values[-LASTS:] > line) >= MOSTLY
    quiet = np.mean(values[:place] < line) >= MOSTLY
    return Rise(place, before, after) if after - before > least and lasting and quiet else None


def crowded(grid: StepGrid, place: int, seconds: float) -> bool:
    """Ranks on the CPU, and from a step on more waited for this machine's processors than before, or nearly always
    someone did: what takes so many `seconds` longer then may be no fault of the run. A slow network leaves processors
    idle; and where ranks say how long they stood in line, that must be enough."""
    if any(device != "cpu" for device in grid.devices) or np.isnan(grid.pressure_s).any():
        return False
    if not np.isnan(grid.queued_s).any():
        early, late = (float(np.median(part.sum(axis=0))) for part in np.split(grid.queued_s, [place], axis=1))
        if HOPS * max(late - early, 0.0) < seconds:
            return False
    share = np.median(np.minimum(grid.pressure_s / np.maximum(grid.step_s, 1e-9), 1.0), axis=0)
    before, after = float(np.median(share[:place])), float(np.median(share[place:]))
    return after > CROWDED or after - before > MORE_CROWDED


def since_of(shown: NDArray[np.bool_]) -> int | None:
    """Where a condition begins to hold for most steps to the end; None where it does not hold at the end."""
    count = len(shown)
    if count < LASTS or np.mean(shown[-LASTS:]) < MOSTLY:
        return None
    # from the end backwards as long as windows hold
    begin = count - LASTS
    while begin > 0 and np.mean(shown[begin - 1 : begin - 1 + LASTS]) >= MOSTLY:
        begin -= 1
    return begin + int(np.argmax(shown[begin:]))
