"""Steps a strategy needs beyond PSGD to the same loss: measured ones, from a data file that names its source."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shardwise import catalog
from shardwise.sync import Strategy
from shardwise.sync._named import strategy_named

DENSE = "psgd"
_TABLE = Path(catalog.__file__).parent / "sync_convergence.toml"


@dataclass(frozen=True)
class Extra:
    share: float | None
    """of PSGD's steps; None: never measured"""
    at_least: bool
    """it did not get as far, so this is the least"""
    source: str

    @property
    def text(self) -> str:
        if self.share is None:
            return "unknown"
        return f"{'>' if self.at_least else '+'}{self.share:.0%}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def measured_texts(optimizer: str) -> list[str]:
    """Strategies that were measured and work with this optimizer."""
    rows = _table().get("measured", [])
    return [row["sync"] for row in rows if _optimizer_fits(strategy_named(row["sync"]), optimizer)]


def _optimizer_fits(strategy: Strategy, optimizer: str) -> bool:
    return strategy.optimizer == "any" or optimizer == strategy.optimizer


def extra_of(strategy: Strategy) -> Extra:
    """Of these very settings; else of the nearest that were measured, which is said."""
    if strategy.name == DENSE:
        return Extra(0.0, False, "the reference: the mean gradient of all at every step")
    table = _table()
    rows = [(strategy_named(row["sync"]), row) for row in table.get("measured", [])]
    for other, row in rows:
        if other == strategy:
            return Extra(float(row["extra"]), not row["met"], table["source"])
    alike = [(other, row) for other, row in rows if other.name == strategy.name]
    if not alike:
        return Extra(None, False, "never measured: it is ranked after those that were")
    _, row = min(alike, key=lambda pair: _distance(pair[0], strategy))
    return Extra(float(row["extra"]), not row["met"], f"of {row['sync']}, the nearest settings {table['source']}")


def _distance(a: Strategy, b: Strategy) -> tuple[int, float]:
    """Settings that differ, then how far apart the steps between averagings are."""
    names = [name for name in vars(a) if getattr(a, name) != getattr(b, name)]
    every = [float(getattr(s, "every", 1)) for s in (a, b)]
    return len([name for name in names if name != "every"]), max(every) / min(every)
