"""What the parts of a fabric cost: data with a source each, and the sum for a tree."""

import math
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from shardwise.fabric.tree import Tree
from shardwise.spec.fields import Fields, list_of, mapping_of

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
        if not path.is_file():
            raise ValueError(f"prices: {path.name} does not exist; write the path of a TOML file")
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"prices: {path.name} is larger than {LARGEST_FILE:,} bytes; write a price list")
        text, where = path.read_text(encoding="utf-8"), path.name
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        parts = "[[card]], [[switch_port]], [[module]], [fibre], [[nvlink]]"
        raise ValueError(f"{where}: no TOML ({error}); write {parts}") from None
    fields = Fields(data, where)
    sources: list[str] = []
    found = {name: _points(fields, name, "gbps", "usd", sources) for name in ("card", "switch_port", "module")}
    nvlink = _points(fields, "nvlink", "gpus", "usd_per_gpu", sources)
    fibre = Fields(
        mapping_of(fields.value("fibre", "{usd = 100}"), fields.at("fibre"), "usd = 100"), fields.at("fibre")
    )
    price = _number(fibre, "usd", least=0.0)
    sources.append(_source(fibre, "fibre"))
    fibre.done()
    fields.done()
    return PartPrices(**found, fibre=price, nvlink=nvlink, sources=tuple(sources))


def _points(fields: Fields, key: str, size: str, usd: str, sources: list[str]) -> Points:
    example = f"[[{key}]] with {size} = 400 and {usd} = 1000"
    rows = list_of(fields.value(key, example), fields.at(key), example)
    found = []
    for number, row in enumerate(rows):
        at = f"{fields.at(key)}[{number}]"
        each = Fields(mapping_of(row, at, example), at)
        found.append((_number(each, size, least=1e-9), _number(each, usd, least=0.0)))
        sources.append(_source(each, f"{key} {found[-1][0]:g}"))
        each.done()
    if not found:
        raise ValueError(f"{fields.at(key)}: no price; write {example}")
    return tuple(sorted(found))


def _number(fields: Fields, key: str, *, least: float) -> float:
    value = fields.value(key, "100")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise ValueError(f"{fields.at(key)}: {value!r} is no price or size; write a number, as in '{key} = 100'")
    return float(value)


def _source(fields: Fields, what: str) -> str:
    source, date = (fields.text(key, example, default="not stated") for key, example in
                    (("source", "list price of a shop"), ("date", "2026-01")))  # fmt: skip
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
