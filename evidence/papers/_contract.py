"""What a reproduction hands back: a table, checks that can fail, lines for a figure."""

from collections.abc import Callable
from dataclasses import dataclass

Cell = str | int | float | None
Tell = Callable[[int, int], None]
"""told (done, of all) as it goes on"""


@dataclass(frozen=True)
class Check:
    claim: str
    holds: bool


@dataclass(frozen=True)
class ResultSeries:
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Result:
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    checks: tuple[Check, ...]
    series: tuple[ResultSeries, ...]
    x_title: str
    y_title: str
    log_x: bool
    log_y: bool
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


@dataclass(frozen=True)
class Reproduction:
    name: str
    question: str
    source: str
    run: Callable[[bool, Tell], Result]
    """quick: a smaller problem that shows the same, for tests"""
