"""What one rank's device did and when, whichever profiler wrote it: spans of kernels, collectives and copies."""

from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.measured.diagnose.clocks import GpuClock

SPAN_KINDS = ("compute", "comm", "copy")
HOST_KINDS = ("data", "checkpoint", "sync", "memory")
"""what a host can be seen doing while its GPU waits: the next batch, a checkpoint, waiting for the GPU, allocating"""


class SpanName(Struct, frozen=True, kw_only=True):
    """What a span is; equal ones share an entry."""

    kind: str
    """of SPAN_KINDS"""
    name: str
    op: str = ""
    """of a collective: all_reduce, reduce_scatter, all_gather, all_to_all, send, broadcast"""
    axis: str = ""
    """where the trace itself names it: tp, cp, ep, dp, pp, fsdp, grad, param"""
    group: str = ""
    """name of its process group"""
    group_size: int = 0
    ranks: tuple[int, ...] = ()
    description: str = ""
    """of the group, as the program named it"""


class HostRanges(Struct, frozen=True):
    start_s: Floats
    end_s: Floats


class ProductTime(Struct, frozen=True, kw_only=True):
    """A matrix product of m x k by k x n, all its calls together."""

    dtype: str
    m: int
    n: int
    k: int
    calls: int
    seconds: float


NO_RANGES = HostRanges(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    name: str
    """of the file"""
    rank: int | None
    world: int | None
    device: str
    start_s: Floats
    """of each span, in order"""
    end_s: Floats
    what: Ints
    """index into `names`"""
    names: tuple[SpanName, ...]
    launched_s: Floats
    """when the host asked for it; NaN where nothing says"""
    sequence: Ints
    """number of a collective in its group; -1 where nothing says"""
    message: Floats
    """elements of a collective; 0 where nothing says"""
    steps: tuple[tuple[float, float], ...]
    """begin and end of each step that the program marked"""
    host: dict[str, HostRanges] = field(default_factory=dict)
    """of HOST_KINDS"""
    products: tuple[ProductTime, ...] = ()
    """where the profiler recorded shapes"""
    clock: GpuClock | None = None
    """where the profiler sampled it"""
    on_cpu: bool = False
    """the spans are operators on the host: nothing ran on a device"""
    simulated: bool = False
    """a step of shardwise's own: nothing in it is the host's"""
    cut_off: bool = False
    """the file ends in the middle; what came before was read"""

    @property
    def called(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.name

    def of_kind(self, kind: str) -> NDArray[np.bool_]:
        known = np.array([name.kind == kind for name in self.names] or [False])
        return np.asarray(known[self.what]) if len(self.what) else np.zeros(0, dtype=bool)

    def window(self, steps: int | None = None) -> tuple[float, float, int]:
        """Begin, end, and the steps between them. A host runs ahead of its device, so that its marks say when work was
        asked for: steps are counted from the first span of one to the first of another. Without marks it is all of the
        trace, in so many `steps`."""
        if not len(self.start_s):
            return 0.0, 0.0, 1
        if not self.steps:
            return float(self.start_s.min()), float(self.end_s.max()), steps or 1
        firsts = self._firsts()
        if len(firsts) > 1:
            return firsts[0], firsts[-1], len(firsts) - 1
        return self.steps[0][0], self.steps[-1][1], len(self.steps)

    def _firsts(self) -> list[float]:
        """When the device began with what each step asked for."""
        order = np.argsort(self.launched_s, kind="stable")
        asked = self.launched_s[order]
        known = int(np.isfinite(asked).sum())
        earliest = np.minimum.accumulate(self.start_s[order][:known][::-1])[::-1]
        places = [int(np.searchsorted(asked[:known], begin)) for begin, _ in self.steps]
        return [float(earliest[place]) for place in places if place < known]
