"""`gpus`: the GPUs of the catalog, or one of them in full."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from shardwise import catalog
from shardwise.answers.answer import Answer, Bars, Cell, FactList, Part, shown, table
from shardwise.answers.chip import ChipAnswer, chip_answer
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import gpu_of, price_of
from shardwise.step.estimate.roofline import critical_intensity, shared_memory_bytes, vector_flops

UsdRange = tuple[float, float]


class GpuAnswer(Answer, frozen=True, kw_only=True):
    """One GPU: its data sheet, how many FLOPs a byte of its memory has to serve, and the price of an hour."""

    name: Annotated[str, shown("name")]
    vendor: str
    architecture: str
    memory_bytes: Annotated[float, shown("GiB", "GiB")]
    memory_bytes_per_s: Annotated[float, shown("TB/s", "TB/s")]
    peak_flops_per_s: dict[str, float]
    bf16_flops_per_s: Annotated[float, shown("16-bit", "whole TFLOP/s")]
    fp8_flops_per_s: Annotated[float | None, shown("fp8", "whole TFLOP/s")]
    fp4_flops_per_s: Annotated[float | None, shown("fp4", "whole TFLOP/s")]
    sms: int
    fp32_cores: int
    base_clock_hz: float
    boost_clock_hz: float
    shared_memory_bytes: float
    l2_bytes: float
    critical_flop_per_byte: float
    nvlink_bytes_per_s: Annotated[float | None, shown("NVLink GB/s", "GB/s")]
    pcie_bytes_per_s: float
    power_watts: Annotated[float, shown("W", "whole")]
    usd_per_hour: Annotated[UsdRange | None, shown("USD/h", "USD range")]
    usd_per_hour_reserved: UsdRange | None
    aliases: Sequence[str]
    vector_flops_per_s: tuple[float, float]
    """base and boost clock"""
    nvlink: str | None
    """generation and links"""
    price_source: str | None
    source: str
    date: str
    chip: ChipAnswer | None = None
    """where it was asked for"""

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.name} ({self.vendor} {self.architecture})", list(self._facts()))
        peaks = {dtype: (rate, f"{rate / 1e12:,.4g}") for dtype, rate in self.peak_flops_per_s.items()}
        yield Bars("peak, dense TFLOP/s", peaks)
        if self.chip is not None:
            yield from self.chip.parts()

    def _facts(self) -> Iterator[tuple[str, Cell]]:
        yield "peak TFLOP/s", ", ".join(f"{dtype} {rate / 1e12:,.4g}" for dtype, rate in self.peak_flops_per_s.items())
        yield "memory", f"{self.memory_bytes / 2**30:.1f} GiB at {self.memory_bytes_per_s / 1e12:.3g} TB/s"
        yield "critical intensity", f"{self.critical_flop_per_byte:.0f} FLOP/byte (16-bit)"
        clocks = f"{self.base_clock_hz / 1e9:.3g} to {self.boost_clock_hz / 1e9:.3g} GHz"
        yield "SMs", f"{self.sms}, {self.fp32_cores:,} fp32 cores, {clocks}"
        vector = " to ".join(f"{rate / 1e12:.1f}" for rate in self.vector_flops_per_s)
        yield "vector fp32", f"{vector} T/s, one operation per core and cycle"
        shared, cache = self.shared_memory_bytes / 2**20, self.l2_bytes / 2**20
        yield "on chip", f"{shared:.0f} MiB L1 and shared, {cache:.0f} MiB L2"
        yield "NVLink", self.nvlink
        host = "NVLink-C2C" if self.pcie_bytes_per_s > FASTEST_PCIE else "PCIe"
        yield host, f"{self.pcie_bytes_per_s / 1e9:.3g} GB/s to the host, each way"
        yield "power", f"{self.power_watts:,.0f} W"
        for name, price in (("on demand", self.usd_per_hour), ("reserved", self.usd_per_hour_reserved)):
            yield f"{name} USD/h", None if price is None else f"{price[0]:.2f}-{price[1]:.2f}"
        yield "price source", self.price_source
        yield "also called", ", ".join(self.aliases) or None
        yield "source", f"{self.source}, {self.date}"


class GpusAnswer(Answer, frozen=True, kw_only=True):
    gpus: Sequence[GpuAnswer]

    def parts(self) -> Iterator[Part]:
        yield table("GPUs (dense TFLOP/s by dtype, links each way)", self.gpus, bars=("16-bit",))


ANSWERS = (GpusAnswer, GpuAnswer)
FASTEST_PCIE = 128e9
"""bytes/s of 16 lanes of generation 6: a faster link to the host is NVLink's"""
PRICES = "Prices: on-demand range of published surveys; `shardwise catalog gpus NAME` has source and date."


def gpus_answer() -> GpusAnswer:
    return GpusAnswer(gpus=[gpu_answer(gpu_of(name)) for name in catalog.names("gpus")], notes=[PRICES])


def gpu_answer(gpu: Gpu, notes: Sequence[str] = (), *, chip: bool = False) -> GpuAnswer:
    link, price = gpu.nvlink, price_of(gpu.name) if gpu.name in catalog.names("prices") else None
    return GpuAnswer(
        name=gpu.name, vendor=gpu.vendor, architecture=gpu.architecture, memory_bytes=gpu.memory_bytes,
        memory_bytes_per_s=gpu.memory_bandwidth, peak_flops_per_s=gpu.peak_flops, bf16_flops_per_s=gpu.peak("bf16"),
        fp8_flops_per_s=gpu.peak_flops.get("fp8"), fp4_flops_per_s=gpu.peak_flops.get("fp4"), sms=gpu.sms,
        fp32_cores=gpu.fp32_cores, base_clock_hz=gpu.base_clock_hz, boost_clock_hz=gpu.boost_clock_hz,
        shared_memory_bytes=shared_memory_bytes(gpu), l2_bytes=gpu.l2_bytes,
        critical_flop_per_byte=critical_intensity(gpu), nvlink_bytes_per_s=link.bandwidth if link else None,
        pcie_bytes_per_s=gpu.pcie_bandwidth, power_watts=gpu.power_watts,
        usd_per_hour=price.on_demand if price else None, usd_per_hour_reserved=price.reserved if price else None,
        aliases=gpu.aliases,
        vector_flops_per_s=(vector_flops(gpu, gpu.base_clock_hz), vector_flops(gpu, gpu.boost_clock_hz)),
        nvlink=f"generation {link.generation}: {link.links} x {link.link_bandwidth / 1e9:.3g} GB/s = "
               f"{link.bandwidth / 1e9:.0f} GB/s each way" if link else None,
        price_source=f"{price.source}, {price.date}" if price else None, source=gpu.source, date=gpu.date,
        chip=chip_answer(gpu) if chip else None, notes=notes,
    )  # fmt: skip
