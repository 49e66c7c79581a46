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
    published: str = ""
    """what others reported at scale, in words"""

    @property
    def text(self) -> str:
        if self.share is None:
            return "unknown"
        return f"{'>' if self.at_least else '+'}{self.share:.0%}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def _rows(optimizer: str) -> list[tuple[Strategy, dict[str, Any]]]:
    """What was measured and works with this optimizer, with such a one first: the others stand in for what was not."""
    mine = ("sgd", "sgd-m") if optimizer.startswith("sgd") else ("adamw",)
    found = [(strategy_named(row["sync"]), row) for row in _table().get("measured", [])]
    fitting = [(s, row) for s, row in found if s.needs_optimizer() in ("any", optimizer)]
    return sorted(fitting, key=lambda pair: pair[1]["optimizer"] not in mine)


def measured_texts(optimizer: str) -> list[str]:
    return list(dict.fromkeys(row["sync"] for _, row in _rows(optimizer)))


def extra_of(strategy: Strategy, optimizer: str) -> Extra:
    """Of these very settings; else of the nearest that were measured, which is said. So is another optimizer."""
    if strategy.name == DENSE:
        return Extra(0.0, False, "the reference: the mean gradient of all at every step")
    table = _table()
    published = str(table.get("published", {}).get(strategy.name, ""))
    alike = [(other, row) for other, row in _rows(optimizer) if other.name == strategy.name]
    if not alike:
        return Extra(None, False, f"never with {optimizer}: it is ranked after those that were", published)
    nearest, row = min(alike, key=lambda pair: _distance(pair[0], strategy))
    other = "" if nearest == strategy else f"with {row['sync']}, not these settings; "
    return Extra(float(row["extra"]), not row["met"], f"{other}{table['source']}, {row['optimizer']}", published)


def _distance(a: Strategy, b: Strategy) -> tuple[int, float]:
    """Settings that differ, then how far apart the steps between averagings are."""
    names = [name for name in vars(a) if getattr(a, name) != getattr(b, name)]
    every = [float(getattr(s, "every", 1)) for s in (a, b)]
    return len([name for name in names if name != "every"]), max(every) / min(every)
