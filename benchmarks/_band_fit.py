"""Bands of a step time from residuals: a base, and a part for each missing support, by quantile regression.

The base is the spread of runs that miss nothing, every run weighing the same. A part says how much further off a source
may be, so sources weigh the same there, and the tail is that of so few sources: of n that lack the same, the next one
lies beyond the largest with a chance of 1 / (n + 1), so the quantile is taken (n + 1) / n further out. Squares of parts
add up to the square of the end, so it is squares that are regressed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import hypot
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix, eye_array, hstack  # type: ignore[import-untyped]

from _accuracy_data import Floats
from _band_rows import Residual
from shardwise.step.estimate.band import HELD, MISSING, end_of, untuned

MOST = 60
"""residuals that stand for all those of one source with the same support: more change no digit"""

MOST_SOURCES = 30
"""that count as independent, of about 130: many are one vendor's, or programs that are like each other"""

DIGITS = 3
"""of what ships: a page that looked at more would count other rows as inside than `validate` does"""


class Bands(NamedTuple):
    low: dict[str, float]
    """base and parts, in the logarithm of measured over predicted time"""
    high: dict[str, float]
    middle: float = 0.0
    """what is added to the prediction of programs whose runs were compared and not fitted, in the same logarithm"""

    def left(self, row: Residual) -> float:
        """What lies between a run and its prediction, that added."""
        return row.surplus - (self.middle if untuned(row.missing) else 0.0)

    def of(self, missing: Iterable[str]) -> tuple[float, float]:
        missing = tuple(missing)
        return end_of(self.low, missing), end_of(self.high, missing)

    def ends(self, row: Residual) -> tuple[float, float]:
        """Of a run's band, which reaches to what an unstated network makes of its step."""
        low, high = self.of(row.missing)
        return -hypot(low, row.network.low), hypot(high, row.network.high)


class Coverage(NamedTuple):
    rows: int
    sources: int
    inside: float
    """share of rows inside their band"""
    inside_sources: float
    """mean over sources of that share"""
    width: float
    """mean of the band's upper end over its lower"""
    error: float
    """mean size of predicted over measured, less 1"""


def bands_from(rows: Iterable[Residual]) -> Bands:
    middle = round(_middle(rows := [row for row in rows if row.teaches]), DIGITS)
    rows = [
        replace(row, surplus=_beside_network(row.surplus - (middle if untuned(row.missing) else 0.0), row))
        for row in rows
    ]
    supported = np.array([row.surplus for row in rows if not row.missing])
    tail = (1 - HELD) / 2
    base = np.quantile(supported, tail), np.quantile(supported, 1 - tail)
    rest = _thinned([row for row in rows if row.missing])
    beyond = _tails(rest, tail)
    sides = []
    for start, quantiles in zip(base, (beyond, 1 - beyond), strict=True):
        parts = _parts(rest, float(start), quantiles)
        numbers = zip(("base", *MISSING), (start, *parts), strict=True)
        sides.append({what: round(float(part), DIGITS) for what, part in numbers})
    return Bands(sides[0], sides[1], middle)


def _beside_network(surplus: float, row: Residual) -> float:
    """What a band has to hold of it: squares of causes add up."""
    told = row.network.high if surplus > 0 else row.network.low
    return float(np.copysign(np.sqrt(max(surplus**2 - told**2, 0.0)), surplus))


def _middle(rows: Iterable[Residual]) -> float:
    """Median over sources of the median of their runs: one source may be far off."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not row.taken_away and untuned(row.missing):
            by_source[row.publisher].append(row.surplus)
    return float(np.median([np.median(group) for group in by_source.values()])) if by_source else 0.0


def _tails(rows: list[tuple[Residual, float]], tail: float) -> Floats:
    """Of each row: how far out the tail is taken. What is found of unknown programs rests on fewer sources; fitted
    programs that others measured are the base elsewhere, and are taken as that is."""
    unknown = np.array(["unknown" in row.missing for row, _ in rows])
    known = len({row.publisher for row, _ in rows if {"alike", "unknown"} & row.missing})
    fewer = len({row.publisher for row, _ in rows if "unknown" in row.missing})
    number = np.clip(np.where(unknown, fewer, known), 1, MOST_SOURCES)
    further = np.maximum(1 - (1 - tail) * (number + 1) / number, 0.0)
    return np.where(["site" in row.missing for row, _ in rows], tail, further)


def coverage(rows: Iterable[Residual], bands: Callable[[Residual], Bands]) -> Coverage:
    by_source: dict[str, list[bool]] = defaultdict(list)
    widths, errors = [], []
    for row in rows:
        low, high = bands(row).ends(row)
        left = bands(row).left(row)
        by_source[row.source].append(low <= left <= high)
        widths.append(np.exp(high - low))
        errors.append(abs(np.expm1(-left)))
    every = [inside for group in by_source.values() for inside in group]
    shares = [np.mean(group) for group in by_source.values()]
    means = (float(np.mean(values)) for values in (every, shares, widths, errors))
    return Coverage(len(every), len(shares), *means)


def left_out_coverage(rows: Iterable[Residual], wanted: Callable[[Residual], bool]) -> Coverage:
    """Every source of the wanted rows by bands that were taken from the others."""
    rows = list(rows)
    looked_at = [row for row in rows if wanted(row)]
    others = {
        publisher: bands_from(row for row in rows if row.publisher != publisher)
        for publisher in {row.publisher for row in looked_at}
    }
    return coverage(looked_at, lambda row: others[row.publisher])


def _thinned(rows: list[Residual]) -> list[tuple[Residual, float]]:
    """Rows with their weights: every source weighs the same in each way it is looked at."""
    totals = Counter((row.publisher, row.taken_away) for row in rows)
    alike: dict[tuple[str, str, frozenset[str]], list[Residual]] = defaultdict(list)
    for row in rows:
        alike[row.publisher, row.taken_away, row.missing].append(row)
    found = []
    for (publisher, taken_away, _), group in alike.items():
        ordered = sorted(group, key=lambda row: row.surplus)
        kept = min(len(ordered), MOST)
        places = ((np.arange(kept) + 0.5) * len(ordered) / kept).astype(int)
        weight = len(group) / totals[publisher, taken_away] / kept
        found += [(ordered[place], weight) for place in places]
    return found


def _parts(rows: list[tuple[Residual, float]], start: float, quantile: Floats) -> Floats:
    """For each of MISSING: the part with which the ends come nearest to each row's `quantile`; away from the middle or
    nothing."""
    upper = start > 0.0
    surplus = np.array([row.surplus for row, _ in rows])
    beyond = np.sign(surplus) * surplus**2 - np.sign(start) * start**2
    missing = csr_matrix([[float(what in row.missing) for what in MISSING] for row, _ in rows])
    weights = np.array([weight for _, weight in rows])
    apart = eye_array(len(rows))
    found = linprog(
        np.concatenate([np.zeros(len(MISSING)), weights * quantile, weights * (1 - quantile)]),
        A_eq=hstack([missing, apart, -apart]), b_eq=beyond,
        bounds=[(0, None) if upper else (None, 0)] * len(MISSING) + [(0, None)] * (2 * len(rows)), method="highs",
    )  # fmt: skip
    if found.x is None:
        raise ValueError(f"bands: the parts have no answer ({found.message})")
    squares = np.asarray(found.x[: len(MISSING)])
    return np.asarray(np.sign(squares) * np.sqrt(np.abs(squares)))
