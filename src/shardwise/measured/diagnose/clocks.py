"""Clocks that were measured: what of a step's kernels a GPU below its boost clock costs, and which GPU it is.

Products and attention are bound by arithmetic, so that they take as much longer as the clock is lower; what memory
bounds does not follow it. A prediction already counts on the clock that the power limit leaves in long runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from shardwise.measured.diagnose.causes import Cause

BUSY = 0.5
"""of its time a GPU works in a sample that counts, where the log tells"""
IDLE = 0.4
"""of the highest clock seen: a sample below is of a GPU that rests, where nothing tells"""
APART = 0.97
"""of the others' clock: below, a GPU is named"""
OFTEN = 0.1
"""of the samples: a reason that is told less often is none"""
SLOWEST_HZ, FASTEST_HZ = 5e7, 2e10


class GpuClock(Struct, frozen=True, kw_only=True):
    """Of one GPU, while it worked."""

    gpu: str
    device: str = ""
    """as its driver calls it"""
    hz: float
    """the middle of all samples"""
    samples: int
    reason: str = ""
    """why it is no higher, as the driver says"""


@dataclass(frozen=True)
class ClockLog:
    name: str
    """of the file"""
    program: str
    """who wrote it"""
    gpus: tuple[GpuClock, ...]

    def named(self, name: str) -> "ClockLog":
        return ClockLog(name, self.program, self.gpus)


@dataclass(frozen=True)
class ClockFinding:
    gpus: tuple[GpuClock, ...]
    boost_hz: float | None
    """of the catalog; None where the GPU is not known"""
    counted_hz: float | None
    """what a prediction counts on; None without one"""

    @property
    def slowest(self) -> GpuClock:
        return min(self.gpus, key=lambda each: each.hz)

    @property
    def middle_hz(self) -> float:
        return median(each.hz for each in self.gpus)

    @property
    def others_hz(self) -> float:
        """The middle of all but the slowest."""
        return median(each.hz for each in self.gpus if each is not self.slowest) if len(self.gpus) > 1 else 0.0

    @property
    def odd(self) -> GpuClock | None:
        """The one GPU that is slower than the others."""
        return self.slowest if self.slowest.hz < APART * self.others_hz else None

    @property
    def reference_hz(self) -> float | None:
        return self.counted_hz or self.boost_hz

    def lost(self, hz: float) -> float:
        """Share of the time of what is bound by arithmetic."""
        return max(1 - hz / self.reference_hz, 0.0) if self.reference_hz else 0.0

    def told(self, hz: float) -> str:
        counted = f", {self.counted_hz / 1e6:,.0f} MHz are counted on" if self.counted_hz else ""
        boost = f" of {self.boost_hz / 1e6:,.0f}" if self.boost_hz else ""
        reason = next((f"; {each.reason}" for each in self.gpus if each.hz <= hz and each.reason), "")
        return f"the SMs run at {hz / 1e6:,.0f}{boost} MHz{counted}{reason}"


def clock_of(
    gpu: str, device: str, hz: NDArray[np.float64], busy: NDArray[np.float64] | None, reasons: Sequence[str] = ()
) -> GpuClock | None:
    """`busy`: share of the time in which the GPU worked, NaN where it is not told; `reasons`: of each sample."""
    sound = (hz > SLOWEST_HZ) & (hz < FASTEST_HZ)
    if busy is not None and np.isfinite(busy).any():
        working = sound & (busy >= BUSY)
    else:
        working = sound & (hz >= IDLE * hz[sound].max(initial=0.0))
    if not working.any():
        return None
    why = ""
    if len(reasons) == len(hz):
        told = [reasons[place] for place in np.flatnonzero(working).tolist() if reasons[place]]
        worst = max(set(told), key=told.count, default="")
        share = told.count(worst) / int(working.sum())
        why = f"{worst} in {share:.0%} of the samples" if worst and share >= OFTEN else ""
    return GpuClock(gpu=gpu, device=device, hz=float(np.median(hz[working])), samples=int(working.sum()), reason=why)


def clocks_apart(causes: Sequence[Cause], finding: ClockFinding, arithmetic: float, predicted_s: float | None
                 ) -> tuple[Cause, ...]:  # fmt: skip
    """Kernels without what the clock costs, and that for itself. `arithmetic`: the share of kernels' time that follows
    the clock; `predicted_s`: of kernels, whose excess alone can be lost to clocks."""
    hz = finding.middle_hz
    found: list[Cause] = []
    for cause in causes:
        lost = cause.seconds * arithmetic * finding.lost(hz) if cause.code == "compute" else 0.0
        if predicted_s is not None:
            lost = min(lost, max(cause.seconds - predicted_s, 0.0))
        found.append(replace(cause, seconds=cause.seconds - lost))
        if lost > 0:
            found.append(Cause(code="clocks", seconds=lost, where=cause.where, evidence=finding.told(hz)))
    return tuple(found)


def level_apart(level: Cause, finding: ClockFinding, kernels_s: float) -> list[Cause]:
    """Of a log: all wait for the slowest GPU, and at most all kernels follow its clock."""
    hz = finding.slowest.hz
    share = finding.lost(hz)
    lost = min(kernels_s * share / (1 - share), max(level.excess_s, 0.0)) if share < 1 else 0.0
    if lost <= 0:
        return [level]
    where = finding.slowest.gpu if finding.odd else ""
    clocks = Cause(code="clocks", seconds=lost, where=where, evidence=f"at most: {finding.told(hz)}")
    return [replace(level, seconds=level.seconds - lost), clocks]
