"""Steps a strategy needs beyond PSGD to the same loss: measured ones, from a data file that names its source."""

import tomllib
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwise import catalog
from shardwise.plugins.optimizers import update_rule

if TYPE_CHECKING:
    from shardwise.plugins.sync import Strategy

DENSE = "psgd"
_TABLE = Path(catalog.__file__).parent / "sync_convergence.toml"


@dataclass(frozen=True)
class ExtraSteps:
    share: float | None
    """of PSGD's steps; None: never measured"""
    at_least: bool
    """it did not get as far, so this is the least"""
    measured: str
    """on what"""
    published: str = ""
    """what others reported at scale, in words"""
    how: str = ""
    """how it follows from what was measured; empty: these very settings were"""

    @property
    def source(self) -> str:
        return f"{self.how}; {self.measured}" if self.how else self.measured

    @property
    def text(self) -> str:
        if self.share is None:
            return "unknown"
        return f"{'>' if self.at_least else '+'}{self.share:.0%}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def _rows(optimizer: str) -> list[tuple["Strategy", dict[str, Any]]]:
    """What was measured and works with this optimizer, with such a one first: the others stand in for what was not."""
    from shardwise.plugins.sync._named import strategy_named

    mine = update_rule(optimizer).steps_like
    found = [(strategy_named(row["sync"]), row) for row in _table().get("measured", [])]
    fitting = [(s, row) for s, row in found if s.needs_optimizer() in ("any", optimizer)]
    return sorted(fitting, key=lambda pair: pair[1]["optimizer"] not in mine)


def measured_texts(optimizer: str) -> list[str]:
    return list(dict.fromkeys(row["sync"] for _, row in _rows(optimizer)))


def extra_of(strategy: "Strategy", optimizer: str) -> ExtraSteps:
    """Of these very settings; else between those that were measured on both sides of one number, else of the nearest.
    What was not measured is said, another optimizer too."""
    if strategy.name == DENSE:
        return ExtraSteps(0.0, False, "the reference: the mean gradient of all at every step")
    table = _table()
    published = str(table.get("published", {}).get(strategy.name, ""))
    alike = [
        ConvergencePoint(settings_of(other), float(row["extra"]), bool(row["met"]), row["sync"], row["optimizer"])
        for other, row in _rows(optimizer)
        if other.name == strategy.name
    ]
    if not alike:
        return ExtraSteps(None, False, f"never with {optimizer}: it is ranked after those that were", published)
    share, at_least, how, measured_with = _between(settings_of(strategy), alike)
    return ExtraSteps(share, at_least, f"{table['source']}, {measured_with}", published, how)


@dataclass(frozen=True)
class ConvergencePoint:
    """One measurement."""

    settings: dict[str, Any]
    extra: float
    met: bool
    text: str
    optimizer: str


def settings_of(thing: Any, prefix: str = "") -> dict[str, Any]:
    """By name, those of its compressor and levels too: outer.every."""
    from shardwise.plugins.compressors import Compressor
    from shardwise.plugins.sync import Strategy

    found: dict[str, Any] = {}
    for name, value in vars(thing).items():
        found[prefix + name] = getattr(value, "name", value)
        if isinstance(value, Strategy | Compressor):
            found |= settings_of(value, f"{prefix}{name}.")
    return found


def _between(wanted: dict[str, Any], points: list[ConvergencePoint]) -> tuple[float, bool, str, str]:
    """(extra, whether at least so much, how it was found, the optimizer it was measured with)."""
    nearest = min(points, key=lambda point: len(_differing(point.settings, wanted)))
    differing = _differing(nearest.settings, wanted)
    if not differing:
        return nearest.extra, not nearest.met, "", nearest.optimizer
    for axis in sorted(differing):
        line = _line(points, nearest, wanted, axis)
        if line:
            others = sorted(differing - {axis})
            share, at_least, how = _on_line(line, axis, float(wanted[axis]))
            unlike = f"with another {', '.join(others)}; " if others else ""
            return share, at_least, unlike + how, nearest.optimizer
    return nearest.extra, not nearest.met, f"with {nearest.text}, not these settings", nearest.optimizer


def _differing(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    return {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


def _line(
    points: list[ConvergencePoint], nearest: ConvergencePoint, wanted: dict[str, Any], axis: str
) -> list[ConvergencePoint]:
    """Measurements that differ from the nearest in this number only, where it is one: in its order."""
    value = wanted.get(axis)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        return []
    found = [
        point
        for point in points
        if point.optimizer == nearest.optimizer and _differing(point.settings, nearest.settings) <= {axis}
    ]
    return sorted(found, key=lambda point: float(point.settings[axis])) if len(found) > 1 else []


def _on_line(line: list[ConvergencePoint], axis: str, value: float) -> tuple[float, bool, str]:
    """Straight in the logarithm of the number between two neighbours. Beyond the last one its figure stands, as the
    least where figures rise towards it."""
    places = [float(point.settings[axis]) for point in line]
    end = 0 if value < places[0] else -1 if value > places[-1] else None
    if end is not None:
        last, inner = line[end], line[1 if end == 0 else -2]
        how = f"{axis} {value:g} is outside the measured range, {places[0]:g} to {places[-1]:g}: with {last.text}"
        return last.extra, not last.met or last.extra > inner.extra, how
    above = next(i for i, place in enumerate(places) if place >= value)
    a, b = line[above - 1], line[above]
    part = log(value / places[above - 1]) / log(places[above] / places[above - 1])
    how = f"between {a.text} ({a.extra:+.0%}) and {b.text} ({b.extra:+.0%}), straight in log {axis}"
    return a.extra + part * (b.extra - a.extra), not (a.met and b.met), how
