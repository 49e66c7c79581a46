"""What a lab run found, as plain data: keys carry their unit."""

from msgspec import Struct


class PortBytes(Struct, frozen=True, kw_only=True):
    link: str
    predicted_bytes: float
    measured_bytes: float
    queue_bytes: int | None = None
    """the longest seen; None: not watched"""


class LabAxis(Struct, frozen=True, kw_only=True):
    """One kind of parallelism in a step of a training."""

    axis: str
    calls: float
    """messages and collectives of a step"""
    measured_s: float
    """in them, of the group or pair for which it was longest, from when the last rank had come"""
    predicted_s: float


class LabRow(Struct, frozen=True, kw_only=True):
    """One case on one fabric in one order of the ranks."""

    fabric: str
    order: tuple[int, ...]
    op: str
    bytes: int
    measured_s: float
    """median over its turns of (last end - last start), those in which a rank began late left out"""
    turns_s: tuple[float, ...]
    rank_s: tuple[float, ...]
    """of each rank, median"""
    predicted_s: float
    predicted_rank_s: tuple[float, ...]
    blind_s: float
    """predicted by a model that knows cards and no switches"""
    error: float
    """predicted over measured, less 1"""
    bytes_error: float
    """the most that a port's bytes differ from the prediction, as a share"""
    ring: bool
    ports: tuple[PortBytes, ...]
    axes: tuple[LabAxis, ...] = ()
    """of a step of the runtime"""
    loss: float | None = None
    """of its last step"""
    pressure: float = 0.0
    """share of the case's time in which something waited for a core"""
    disturbed: bool = False
    """by other work on this machine: its times vary more, or it was waited for"""


class PortLoad(Struct, frozen=True, kw_only=True):
    """What one link carried over time beside what was predicted, in equal bins."""

    what: str
    link: str
    bin_s: float
    capacity_bytes_per_s: float
    measured_bytes_per_s: tuple[float, ...]
    predicted_bytes_per_s: tuple[float, ...]
    """empty where nothing was predicted"""
    queue_bytes: tuple[int, ...]


class Measured(Struct, frozen=True, kw_only=True):
    fabric: str
    gpus: int
    dilation: float
    card_bytes_per_s: float
    message_s: float | None
    """the one number that was calibrated; None: nothing was predicted"""
    rows: tuple[LabRow, ...]
    loads: tuple[PortLoad, ...]
    ports: tuple[PortBytes, ...]
    """of the whole run, every port"""
    drops: dict[str, int]
    retransmits: int
    timeouts: int
    marks_received: int
    cpu_pressure: float
    """share of the last ten seconds in which something waited for a core"""
    ticks: int
    ticks_missed: int


class LabComparison(Struct, frozen=True, kw_only=True):
    what: str
    measured: float
    predicted: float | None
    unit: str


class DemoResult(Struct, frozen=True, kw_only=True):
    demo: str
    explained: tuple[str, str, str]
    comparisons: tuple[LabComparison, ...]
    runs: tuple[Measured, ...]
