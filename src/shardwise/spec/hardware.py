"""Catalog entries and user mappings -> Gpu, Level, Fabric, Price. Text with units becomes SI here."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from shardwise import catalog
from shardwise.spec.cluster import Level
from shardwise.spec.fields import Fields, list_of, mapping_of
from shardwise.spec.gpu import Gpu, Link
from shardwise.units import bytes_of, flops_of, hertz_of, rate_of, seconds_of, watts_of

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


class Fabric(Struct, frozen=True, kw_only=True):
    """A catalog network: the levels at full size and the GPU it is usually built with."""

    name: str
    gpu: str
    description: str
    levels: tuple[Level, ...]
    source: str
    date: str
    tray: int | None = None
    """GPUs per host where one NVLink domain spans many hosts"""
    assumed: str = ""
    """what was taken for granted, where no file describes the fabric"""


class Price(Struct, frozen=True, kw_only=True):
    """What one GPU costs per hour in USD, (low, high), and what its electricity costs."""

    gpu: str
    on_demand: tuple[float, float]
    reserved: tuple[float, float] | None
    usd_per_kwh: float
    pue: float
    """energy of the whole site over energy of the computers"""
    source: str
    date: str


def gpu_from(data: Mapping[str, Any], where: str) -> Gpu:
    """A GPU from a mapping in the form of the catalog files, without what only the catalog states."""
    return _gpu(Fields(data, where))


def _gpu(fields: Fields) -> Gpu:
    gpu = Gpu(
        name=fields.text("name", "my-gpu"),
        vendor=fields.text("vendor", "NVIDIA"),
        architecture=fields.text("architecture", "Hopper"),
        memory_bytes=fields.quantity("memory", bytes_of, "80 GiB"),
        memory_bandwidth=fields.quantity("memory_bandwidth", rate_of, "3.35 TB/s"),
        peak_flops=_peaks(fields),
        sms=fields.integer("sms", "132"),
        l2_bytes=fields.quantity("l2", bytes_of, "50 MiB"),
        shared_bytes_per_sm=fields.quantity("shared_per_sm", bytes_of, "256 KiB"),
        fp32_cores=fields.integer("fp32_cores", "16896"),
        base_clock_hz=fields.quantity("base_clock", hertz_of, "1.59 GHz"),
        boost_clock_hz=fields.quantity("boost_clock", hertz_of, "1.98 GHz"),
        power_watts=fields.quantity("power", watts_of, "700 W"),
        pcie_bandwidth=fields.quantity("pcie_bandwidth", rate_of, "64 GB/s"),
        nvlink=_link(fields),
        aliases=fields.texts("aliases"),
        source=fields.text("source", "data sheet", default=""),
        date=fields.text("date", "2026-01", default=""),
    )
    fields.done()
    return gpu


def _peaks(fields: Fields) -> dict[str, float]:
    where = fields.at("peak")
    rates = Fields(
        mapping_of(fields.value("peak", "{bf16: 989 TFLOP/s}"), where, "'bf16: 989 TFLOP/s' under it"), where
    )
    found = {d: rates.quantity(d, flops_of, "989 TFLOP/s") for d in DTYPES if rates.has(d)}
    rates.done()
    for dtype, rate in found.items():
        if rate <= 0:
            raise ValueError(f"{where}: {dtype} is {rate:g}; write a positive rate or leave it out")
    return found


def _link(fields: Fields) -> Link | None:
    if not fields.has("nvlink"):
        return None
    where = fields.at("nvlink")
    example = "'generation: 4', 'links: 18', 'link_bandwidth: 25 GB/s' under it"
    link = Fields(mapping_of(fields.value("nvlink", ""), where, example), where)
    found = Link(
        generation=link.integer("generation", "4"),
        links=link.integer("links", "18"),
        link_bandwidth=link.quantity("link_bandwidth", rate_of, "25 GB/s"),
    )
    link.done()
    return found


def level_from(data: Mapping[str, Any], where: str) -> Level:
    """A network level from a mapping in the form of the catalog files."""
    fields = Fields(data, where)
    level = Level(
        name=fields.text("name", "leaf"),
        kind=fields.text("kind", "network"),
        degree=fields.integer("degree", "8"),
        bandwidth=fields.quantity("bandwidth", rate_of, "400 Gbps"),
        latency_s=fields.quantity("latency", seconds_of, "1 us"),
        reduces=fields.flag("reduces"),
        oversubscription=fields.number("oversubscription", 1.0),
        rails=fields.integer("rails", "8", default=1),
        mesh=fields.integers("mesh"),
    )
    fields.done()
    return level


def levels_from(data: object, where: str, most: int = 8) -> tuple[Level, ...]:
    example = "one '- name: ...' entry per network level, the fastest first"
    levels = list_of(data, where, example)
    if not 0 < len(levels) <= most:
        raise ValueError(f"{where}: {len(levels)} levels; write 1 to {most}")
    entries = [(f"{where}[{i}]", level) for i, level in enumerate(levels)]
    return tuple(level_from(mapping_of(level, at, example), at) for at, level in entries)


@cache
def gpu_of(name: str) -> Gpu:
    """A GPU of the catalog, by name or alias."""
    stem = catalog.resolve("gpus", name)
    fields = Fields(catalog.entry("gpus", stem), f"gpu {stem}")
    for elsewhere in ("default_fabric", "driver_name", "kernels"):
        fields.has(elsewhere)
    return _gpu(fields)


@cache
def fabric_of(name: str) -> Fabric:
    """A fabric of the catalog, by name or alias."""
    stem = catalog.resolve("fabrics", name)
    where = f"fabric {stem}"
    fields = Fields(catalog.entry("fabrics", stem), where)
    fields.texts("aliases")
    fabric = Fabric(
        name=fields.text("name", stem),
        gpu=fields.text("gpu", "h100"),
        description=fields.text("description", "..."),
        levels=levels_from(fields.value("levels", "[]"), fields.at("levels")),
        source=fields.text("source", "..."),
        date=fields.text("date", "2026-01"),
        tray=fields.integer("tray", "4") if fields.has("tray") else None,
    )
    fields.done()
    return fabric


@cache
def price_of(gpu: str) -> Price:
    """What an hour of a GPU costs; not every GPU of the catalog is rented out at a published price."""
    name = gpu_of(gpu).name
    if name not in catalog.names("prices"):
        known = ", ".join(n for n in catalog.names("prices") if n != "electricity")
        raise ValueError(f"price: no published price for gpu {name!r}; state one, or use one of: {known}")
    data, power = catalog.entry("prices", name), catalog.entry("prices", "electricity")
    return Price(
        gpu=name,
        on_demand=_range(data["on_demand"]),
        reserved=_range(data["reserved"]) if "reserved" in data else None,
        usd_per_kwh=float(power["usd_per_kwh"]),
        pue=float(power["pue"]),
        source=str(data["source"]),
        date=str(data["date"]),
    )


def _range(data: Mapping[str, Any]) -> tuple[float, float]:
    return float(data["low_usd_per_gpu_hour"]), float(data["high_usd_per_gpu_hour"])
