"""What nccl-tests should show on a fabric: bus bandwidth by size, with a band."""

from msgspec import Struct


class BusRate(Struct, frozen=True, kw_only=True):
    bytes: float
    bus_bytes_per_s: float
    low_bytes_per_s: float
    high_bytes_per_s: float


class Benchmark(Struct, frozen=True, kw_only=True):
    axis: str
    op: str
    ranks: int
    stride: int
    message_bytes: float
    command: str
    expected: tuple[BusRate, ...]
