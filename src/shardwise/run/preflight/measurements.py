"""What was measured on a node, or by all ranks and told by the first: checked when it is read."""

from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0, lt=1e18)]
Count = Annotated[int, Meta(ge=1, lt=2**53)]


class DeviceProduct(Struct, frozen=True, kw_only=True):
    """One product, computed twice."""

    device: str
    name: str
    torch: str
    equal: bool
    """twice the same bits, and those that are right"""
    digest: str
    flops_per_s: Positive


class MeasuredCollective(Struct, frozen=True, kw_only=True):
    axis: str
    op: str
    bytes: Count
    ranks: Count
    nodes: Count
    seconds: Positive
    """of the slowest group"""
    median_s: Positive
    groups: Count
    hosts: list[str]
    """of the slowest group"""
    device: str


class MeasuredPair(Struct, frozen=True, kw_only=True):
    a: str
    b: str
    bytes_per_s: Positive


class FolderRates(Struct, frozen=True, kw_only=True):
    folder: str
    error: str = ""
    bytes: int = 0
    write_bytes_per_s: Positive | None = None
    read_bytes_per_s: Positive | None = None
    cached: bool = False
    """it may have been read from memory"""


class CounterWindow(Struct, frozen=True, kw_only=True):
    """Counters of the cards before and after the traffic."""

    before: dict[str, int]
    after: dict[str, int]
    seconds: Positive


class TrialSteps(Struct, frozen=True, kw_only=True):
    records: int
    exact: bool
    """in seconds; else only their proportions are known"""
    median_s: Positive
    variation: float
    tail: float
    """the slowest hundredth over the middle"""


class TrialTrace(Struct, frozen=True, kw_only=True):
    step_s: Positive
    parts_s: dict[str, float]
    exposed_s: float
    hidden_s: float
    slow_rank: str
    ranks: int
    slowest: float | None
    """speed of the slowest rank's kernels over the middle one's; None for one rank"""


class Trial(Struct, frozen=True, kw_only=True):
    steps: TrialSteps | None = None
    trace: TrialTrace | None = None


class Measurements(Struct, kw_only=True):
    """None or empty: not measured."""

    seconds: float | None = None
    """that were measured; None: nothing was"""
    world: int | None = None
    local_world: int | None = None
    products: list[DeviceProduct] = []
    collectives: list[MeasuredCollective] = []
    pairs: list[MeasuredPair] = []
    storage: FolderRates | None = None
    counters: CounterWindow | None = None
    clock_offsets_s: dict[str, float] = {}
    nccl_log: str = ""
    ibnetdiscover: str = ""
    trial: Trial | None = None
