"""Catalog entries and user mappings -> Gpu, Level, Fabric, Price. Text with units becomes SI here."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from shardwise import catalog
from shardwise.fields import Fields
from shardwise.spec.cluster import Host, Level
from shardwise.spec.gpu import HOST_BYTES_PER_S, Gpu, Link
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
    link_layer: str = ""
    """of `LINK_LAYERS`"""
    host: Host | None = None


class Price(Struct, frozen=True, kw_only=True):
    """What one GPU costs per hour in USD, (low, high)."""

    gpu: str
    on_demand: tuple[float, float]
    reserved: tuple[float, float] | None
    source: str
    date: str


class Electricity(Struct, frozen=True, kw_only=True):
    usd_per_kwh: float
    pue: float
    """energy of the whole site over energy of the computers"""
    host_share: float
    """of the rating of a host, that it draws in training"""

    def usd(self, energy_j: float) -> float:
        """Of computers that take so much, with what the site adds."""
        return self.usd_per_kwh * self.pue * energy_j / 3.6e6


def gpu_from(data: Mapping[str, Any], where: str) -> Gpu:
    """A GPU from a mapping in the form of the catalog files, without what only the catalog states."""
    return _gpu(Fields(data, where))


def _gpu(fields: Fields) -> Gpu:
    gpu = Gpu(
        name=fields.text("name", example="my-gpu"),
        vendor=fields.text("vendor", example="NVIDIA"),
        architecture=fields.text("architecture", example="Hopper"),
        memory_bytes=fields.quantity("memory", bytes_of, "80 GiB"),
        memory_bandwidth=fields.quantity("memory_bandwidth", rate_of, "3.35 TB/s"),
        peak_flops=_peaks(fields),
        sms=fields.whole("sms", example="132"),
        l2_bytes=fields.quantity("l2", bytes_of, "50 MiB"),
        shared_bytes_per_sm=fields.quantity("shared_per_sm", bytes_of, "256 KiB"),
        fp32_cores=fields.whole("fp32_cores", example="16896"),
        base_clock_hz=fields.quantity("base_clock", hertz_of, "1.59 GHz"),
        boost_clock_hz=fields.quantity("boost_clock", hertz_of, "1.98 GHz"),
        power_watts=fields.quantity("power", watts_of, "700 W"),
        pcie_bandwidth=fields.quantity("pcie_bandwidth", rate_of, "64 GB/s"),
        host_bandwidth=fields.quantity("host_bandwidth", rate_of, "25 GB/s")
        if fields.has("host_bandwidth")
        else HOST_BYTES_PER_S,
        nvlink=_link(fields),
        peer_to_peer=fields.flag("peer_to_peer", default=True),
        aliases=fields.texts("aliases"),
        source=fields.text("source", example="data sheet", default=""),
        date=fields.text("date", example="2026-01", default=""),
    )
    fields.done()
    return gpu


def _peaks(fields: Fields) -> dict[str, float]:
    rates = fields.section("peak", "'bf16: 989 TFLOP/s' under it")
    found = {d: rates.quantity(d, flops_of, "989 TFLOP/s") for d in DTYPES if rates.has(d)}
    rates.done()
    for dtype, rate in found.items():
        if rate <= 0:
            raise rates.refuse(dtype, "a positive rate, or leave it out")
    return found


def _link(fields: Fields) -> Link | None:
    if not fields.has("nvlink"):
        return None
    link = fields.section("nvlink", "'generation: 4', 'links: 18', 'link_bandwidth: 25 GB/s' under it")
    found = Link(
        generation=link.whole("generation", example="4"),
        links=link.whole("links", example="18"),
        link_bandwidth=link.quantity("link_bandwidth", rate_of, "25 GB/s"),
    )
    link.done()
    return found


def levels_from(fields: Fields, most: int = 8) -> tuple[Level, ...]:
    """The network levels of a cluster or a fabric, in the form of the catalog files."""
    return tuple(map(_level, fields.sections("levels", "a level as '- name: ...', the fastest first", most=most)))


def host_from(fields: Fields, gpus: int) -> Host | None:
    """What a file states under `host`, of so many GPUs together."""
    if not fields.has("host"):
        return None
    host = fields.section("host", "'memory: 2 TB', 'power: 10.2 kW' under it")
    found = Host(
        memory_bytes=host.quantity("memory", bytes_of, "2 TB") / gpus,
        rated_watts=host.quantity("power", watts_of, "10.2 kW") / gpus if host.has("power") else 0.0,
        source=host.text("source", example="data sheet", default=""),
    )  # fmt: skip
    host.done()
    return found


def _level(fields: Fields) -> Level:
    level = Level(
        name=fields.text("name", example="leaf"),
        kind=fields.text("kind", example="network"),
        degree=fields.whole("degree", example="8"),
        bandwidth=fields.quantity("bandwidth", rate_of, "400 Gbps"),
        latency_s=fields.quantity("latency", seconds_of, "1 us"),
        reduces=fields.flag("reduces"),
        oversubscription=fields.number("oversubscription", 1.0),
        rails=fields.whole("rails", example="8", default=1),
        cards=fields.whole("cards", example="4", default=0),
        cross_rail=fields.text("cross_rail", example="nvlink", default="nvlink"),
        mesh=fields.wholes("mesh", default=()),
        torus=fields.wholes("torus", default=()),
    )
    fields.done()
    return level


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
    levels = levels_from(fields)
    tray = fields.whole("tray", example="4") if fields.has("tray") else None
    fabric = Fabric(
        name=fields.text("name", example=stem),
        gpu=fields.text("gpu", example="h100"),
        description=fields.text("description", example="..."),
        levels=levels,
        source=fields.text("source", example="..."),
        date=fields.text("date", example="2026-01"),
        tray=tray,
        host=host_from(fields, tray or levels[0].degree),
        link_layer=fields.text("link_layer", example="infiniband", default=""),
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
    data = catalog.entry("prices", name)
    return Price(
        gpu=name,
        on_demand=_range(data["on_demand"]),
        reserved=_range(data["reserved"]) if "reserved" in data else None,
        source=str(data["source"]),
        date=str(data["date"]),
    )


@cache
def electricity() -> Electricity:
    power = catalog.entry("prices", "electricity")
    return Electricity(usd_per_kwh=float(power["usd_per_kwh"]), pue=float(power["pue"]),
                       host_share=float(power["host_share"]))  # fmt: skip


def _range(data: Mapping[str, Any]) -> tuple[float, float]:
    return float(data["low_usd_per_gpu_hour"]), float(data["high_usd_per_gpu_hour"])
