"""`shardwise gpus`: the GPU catalog, or one GPU in full."""

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise import catalog
from shardwise.cli import _notes
from shardwise.cli._html import draw_amounts
from shardwise.cli._options import Explain, Json
from shardwise.cli._output import Cell, print_facts, print_json, print_notes, print_table
from shardwise.estimate.roofline import critical_intensity, shared_memory_bytes, vector_flops
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import Price, gpu_of, price_of

HEADS = ["name", "GiB", "TB/s", "16-bit", "fp8", "fp4", "NVLink GB/s", "W", "USD/h"]


def gpus(
    name: Annotated[str | None, Parameter(help="A GPU of the catalog, by name or alias.")] = None,
    /,
    *,
    explain: Explain = False,
    json: Json = False,
) -> None:
    """The GPUs shardwise knows: peaks, memory, links, power, price."""
    if name is not None:
        _one(gpu_of(name), explain, json)
        return
    known = [gpu_of(each) for each in catalog.names("gpus")]
    if json:
        print_json({"gpus": [_data(gpu) for gpu in known]})
        return
    print_table("GPUs (dense TFLOP/s by dtype, links each way)", HEADS, map(_cells, known), bars=HEADS[3:4])
    print_notes(["Prices: on-demand range of published surveys; `shardwise gpus NAME` has source and date."])


def _one(gpu: Gpu, explain: bool, json: bool) -> None:
    notes = _notes.on_gpu(gpu.name, gpu.architecture) if explain else []
    if json:
        print_json(_data(gpu) | {"notes": notes})
        return
    print_facts(f"{gpu.name} ({gpu.vendor} {gpu.architecture})", _facts(gpu))
    rates = {dtype: (rate, f"{rate / 1e12:,.4g}") for dtype, rate in gpu.peak_flops.items()}
    draw_amounts("peak, dense TFLOP/s", rates)
    print_notes(notes)


def _price(gpu: Gpu) -> Price | None:
    return price_of(gpu.name) if gpu.name in catalog.names("prices") else None


def _range(bounds: tuple[float, float] | None) -> str | None:
    return None if bounds is None else f"{bounds[0]:.2f}-{bounds[1]:.2f}"


def _cells(gpu: Gpu) -> list[Cell]:
    price = _price(gpu)
    rates = (gpu.peak("bf16"), gpu.peak_flops.get("fp8"), gpu.peak_flops.get("fp4"))
    return [
        gpu.name, f"{gpu.memory_bytes / 2**30:.1f}", gpu.memory_bandwidth / 1e12,
        *(None if rate is None else f"{rate / 1e12:,.0f}" for rate in rates),
        f"{gpu.nvlink.bandwidth / 1e9:.0f}" if gpu.nvlink else None, f"{gpu.power_watts:,.0f}",
        _range(price.on_demand) if price else None,
    ]  # fmt: skip


def _facts(gpu: Gpu) -> list[tuple[str, Cell]]:
    link, price = gpu.nvlink, _price(gpu)
    clocks = f"{gpu.base_clock_hz / 1e9:.3g} to {gpu.boost_clock_hz / 1e9:.3g} GHz"
    vector = [f"{vector_flops(gpu, clock) / 1e12:.1f}" for clock in (gpu.base_clock_hz, gpu.boost_clock_hz)]
    rates = ", ".join(f"{dtype} {rate / 1e12:,.4g}" for dtype, rate in gpu.peak_flops.items())
    return [
        ("peak TFLOP/s", rates),
        ("memory", f"{gpu.memory_bytes / 2**30:.1f} GiB at {gpu.memory_bandwidth / 1e12:.3g} TB/s"),
        ("critical intensity", f"{critical_intensity(gpu):.0f} FLOP/byte (16-bit)"),
        ("SMs", f"{gpu.sms}, {gpu.fp32_cores:,} fp32 cores, {clocks}"),
        ("vector fp32", f"{' to '.join(vector)} T/s, one operation per core and cycle"),
        ("on chip", f"{shared_memory_bytes(gpu) / 2**20:.0f} MiB L1 and shared, {gpu.l2_bytes / 2**20:.0f} MiB L2"),
        ("NVLink", f"generation {link.generation}: {link.links} x {link.link_bandwidth / 1e9:.3g} GB/s = "
                   f"{link.bandwidth / 1e9:.0f} GB/s each way" if link else None),
        ("PCIe", f"{gpu.pcie_bandwidth / 1e9:.3g} GB/s each way"),
        ("power", f"{gpu.power_watts:,.0f} W"),
        ("on demand USD/h", _range(price.on_demand) if price else None),
        ("reserved USD/h", _range(price.reserved) if price else None),
        ("price source", f"{price.source}, {price.date}" if price else None),
        ("also called", ", ".join(gpu.aliases) or None),
        ("source", f"{gpu.source}, {gpu.date}"),
    ]  # fmt: skip


def _data(gpu: Gpu) -> dict[str, Any]:
    price = _price(gpu)
    return {
        "name": gpu.name, "vendor": gpu.vendor, "architecture": gpu.architecture, "memory_bytes": gpu.memory_bytes,
        "memory_bytes_per_s": gpu.memory_bandwidth, "peak_flops_per_s": gpu.peak_flops, "sms": gpu.sms,
        "fp32_cores": gpu.fp32_cores, "base_clock_hz": gpu.base_clock_hz, "boost_clock_hz": gpu.boost_clock_hz,
        "shared_memory_bytes": shared_memory_bytes(gpu), "l2_bytes": gpu.l2_bytes,
        "critical_flop_per_byte": critical_intensity(gpu),
        "nvlink_bytes_per_s": gpu.nvlink.bandwidth if gpu.nvlink else None, "pcie_bytes_per_s": gpu.pcie_bandwidth,
        "power_watts": gpu.power_watts, "usd_per_hour": msgspec.to_builtins(price.on_demand) if price else None,
        "usd_per_hour_reserved": msgspec.to_builtins(price.reserved) if price else None,
        "aliases": gpu.aliases, "source": gpu.source, "date": gpu.date,
    }  # fmt: skip
