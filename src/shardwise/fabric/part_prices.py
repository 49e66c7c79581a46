"""What the parts of a fabric cost: data with a source each, and the sum for a tree."""

import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from shardwise.bounded import toml_of
from shardwise.fabric.tree import Tree
from shardwise.fields import Fields, read_file

GIGABIT = 1e9 / 8
LARGEST_FILE = 1_000_000
Points = tuple[tuple[float, float], ...]
"""(size, dollars), rising"""


@dataclass(frozen=True)
class PartPrices:
    card: Points
    switch_port: Points
    module: Points
    fibre: float
    nvlink: Points
    """GPUs of a domain, dollars for each GPU"""
    sources: tuple[str, ...]


class Bill(Struct, frozen=True, kw_only=True):
    """Dollars for each GPU."""

    cards: float
    switch_ports: float
    optics: float
    nvlink: float

    @property
    def total(self) -> float:
        return self.cards + self.switch_ports + self.optics + self.nvlink


def part_prices(path: Path | None = None) -> PartPrices:
    """From a file of the catalog's form, or the catalog's own."""
    if path is None:
        text, where = files("shardwise.catalog").joinpath("network_prices.toml").read_text(encoding="utf-8"), "prices"
    else:
        raw = read_file(path, "prices", LARGEST_FILE, "the path of a TOML file")
        text, where = raw.decode("utf-8", errors="replace"), path.name
    try:
        data = toml_of(text)
    except ValueError as error:
        parts = "[[card]], [[switch_port]], [[module]], [fibre], [[nvlink]]"
        raise ValueError(f"{where}: is not TOML ({error}); write {parts}") from None
    fields = Fields(data, where)
    sources: list[str] = []
    found = {name: _points(fields, name, "gbps", "usd", sources) for name in ("card", "switch_port", "module")}
    nvlink = _points(fields, "nvlink", "gpus", "usd_per_gpu", sources)
    fibre = fields.section("fibre", "[fibre] with usd = 100")
    price = fibre.number("usd")
    sources.append(_source(fibre, "fibre"))
    fibre.done()
    fields.done()
    return PartPrices(**found, fibre=price, nvlink=nvlink, sources=tuple(sources))


def _points(fields: Fields, key: str, size: str, usd: str, sources: list[str]) -> Points:
    example = f"[[{key}]] with {size} = 400 and {usd} = 1000"
    found = []
    for each in fields.sections(key, example):
        found.append((each.number(size, least=1e-9), each.number(usd)))
        sources.append(_source(each, f"{key} {found[-1][0]:g}"))
        each.done()
    return tuple(sorted(found))


def _source(fields: Fields, what: str) -> str:
    source, date = (fields.text(key, default="not stated") for key in ("source", "date"))
    return f"{what}: {source}, {date}"


def priced_at(points: Points, size: float) -> float:
    """Between two known sizes in proportion to powers of the size, outside in proportion to the nearest."""
    below = [p for p in points if p[0] <= size]
    above = [p for p in points if p[0] >= size]
    if not below or not above:
        near = points[0] if not below else points[-1]
        return near[1] * size / near[0]
    (a, low), (b, high) = below[-1], above[0]
    part = math.log(size / a) / math.log(b / a) if b > a else 0.0
    if low <= 0 or high <= 0:
        return low + (high - low) * (size - a) / (b - a) if b > a else low
    return float(low * (high / low) ** part)


def bill_of(tree: Tree, prices: PartPrices) -> Bill:
    """A card, a switch port, two modules and a fibre for every GPU; above the leaves cables of the cards' speed with
    two ports and two modules each; NVLink by the size of the domain (none below the smallest that is priced)."""
    cluster, gpus = tree.cluster, tree.gpus
    domain = cluster.levels[0].degree
    known = prices.nvlink[0][0]
    nvlink = priced_at(prices.nvlink, domain) if domain > known else prices.nvlink[0][1]
    if not tree.tiers:
        return Bill(cards=0.0, switch_ports=0.0, optics=0.0, nvlink=nvlink)
    speed = cluster.levels[1].bandwidth
    gbps = speed / GIGABIT
    port, cable = priced_at(prices.switch_port, gbps), 2 * priced_at(prices.module, gbps) + prices.fibre
    upward = sum(tree.links.capacity[tree.offsets[g] : tree.offsets[g + 1]].sum()
                 for g in range(4, len(tree.offsets) - 1, 2))  # fmt: skip
    cables = float(upward) / speed / gpus
    return Bill(cards=priced_at(prices.card, gbps), switch_ports=port * (1 + 2 * cables), optics=cable * (1 + cables),
                nvlink=nvlink)  # fmt: skip
