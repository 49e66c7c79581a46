"""One accelerator: what its datasheet states, in SI."""

from msgspec import Struct

HOST_BYTES_PER_S = 25e9
"""host memory bandwidth one GPU's share of the CPUs has (200 GB/s for a node of 8)"""


class Link(Struct, frozen=True, kw_only=True):
    """A point-to-point port technology of the GPU, such as NVLink."""

    generation: int
    links: int
    link_bandwidth: float
    """bytes/s of one link, each way"""

    @property
    def bandwidth(self) -> float:
        """bytes/s out of one GPU, each way, over all its links."""
        return self.links * self.link_bandwidth


class Gpu(Struct, frozen=True, kw_only=True):
    name: str
    vendor: str
    architecture: str
    memory_bytes: float
    """what the driver reports as usable, not the number on the box"""
    memory_bandwidth: float
    """bytes/s"""
    peak_flops: dict[str, float]
    """dense FLOP/s of the matrix units by dtype: tf32, fp16, bf16, fp8, fp4; fp32 is the vector rate"""
    sms: int
    l2_bytes: float
    shared_bytes_per_sm: float
    fp32_cores: int
    base_clock_hz: float
    boost_clock_hz: float
    power_watts: float
    pcie_bandwidth: float
    """bytes/s to the host, each way"""
    host_bandwidth: float = HOST_BYTES_PER_S
    """bytes/s of the host's memory that are this GPU's share while its neighbours use theirs"""
    nvlink: Link | None = None
    peer_to_peer: bool = True
    """reads and writes another GPU's memory over PCIe; without it what one sends another is copied through the host"""
    aliases: tuple[str, ...] = ()
    source: str = ""
    date: str = ""

    @property
    def tpu(self) -> bool:
        """Runs what XLA compiled; no program of NVIDIA's."""
        return self.vendor == "Google"

    def __hash__(self) -> int:
        """The name says enough: the peaks, a dict, have no hash."""
        return hash(self.name)

    def __post_init__(self) -> None:
        for field in ("memory_bytes", "memory_bandwidth", "sms", "power_watts"):
            value = getattr(self, field)
            if not value > 0:
                raise ValueError(f"gpu {self.name}: {field} is {value}; it must be positive")
        if "bf16" not in self.peak_flops and "fp16" not in self.peak_flops:
            raise ValueError(f"gpu {self.name}: peak needs bf16 or fp16, got {sorted(self.peak_flops)}")

    def peak(self, dtype: str) -> float:
        """Dense matrix FLOP/s for a dtype, in the format that it runs in."""
        return self.peak_flops[self.runs_in(dtype)]

    def runs_in(self, dtype: str) -> str:
        """The dtype itself; where the chip lacks it, the next wider one it has."""
        wider = {"fp4": "fp8", "fp8": "bf16", "bf16": "fp16", "fp16": "bf16", "tf32": "fp32", "int8": "fp8"}
        seen = {dtype}
        while dtype not in self.peak_flops:
            dtype = wider.get(dtype, "bf16")
            if dtype in seen:
                raise ValueError(f"gpu {self.name} has no rate for {sorted(seen)}; it has {sorted(self.peak_flops)}")
            seen.add(dtype)
        return dtype
