"""Runs of every table for the prior of `shardwise.step.estimate.posterior`: by shipped constants, and as if nothing had
been fitted on their source."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from _band_rows import publisher_of
from _class_rows import paths, unseen
from shardwise.arrays import Floats
from shardwise.measured.validate.few_runs import group_of, seen
from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.measured.validate.predict import Prediction, network_spreads, predict_cases
from shardwise.measured.validate.score import scored
from shardwise.measured.validate.table import MeasuredRow, read_table
from shardwise.step.estimate.causes import CAUSES, on_network, with_support

VENDORS = ("DGXC", "MLPerf", "vTrain", "geodesic", "FlashAttention", "MarinFold", "ZeroBubble", "Narayanan",
           "Megatron-LM-README", "Megatron-Bridge", "MaxText-DGXC", "NeMo", "nanotron", "XTuner")  # fmt: skip
"""beginnings of sources that one publisher measured, besides those that bands leave out together"""


@dataclass(frozen=True)
class LearnRow:
    source: str
    publisher: str
    group: tuple[str, ...]
    table: str
    causes: Floats
    surplus: float
    """logarithm of measured over predicted step time"""
    seen: bool
    """predicted by constants fitted on this source"""
    missing: frozenset[str]


def learn_rows(wanted: Callable[[str], bool] = lambda _: True) -> list[LearnRow]:
    """Scored runs of all tables, each run once: as shipped, and, where constants were fitted on its source, again as if
    they had not been."""
    rows: dict[object, tuple[str, MeasuredRow]] = {}
    for path in paths():
        for row in read_table(path) if wanted(path.name) else ():
            key = tuple(sorted(cell for cell in row.text.items() if cell[1] and "predicted" not in cell[0]))
            rows.setdefault(key, (path.name, row))
    cases: dict[int, MeasuredCase] = {}
    tables: dict[int, str] = {}
    for number, (table, row) in enumerate(rows.values()):
        try:
            cases[number], tables[number] = measured_case(MeasuredRow(row=number, text=row.text)), table
        except UnsupportedRow:
            continue
    found = {p.measured.row: p for p in predict_cases(cases.values())}
    network = {number: each.deviation for number, each in network_spreads(list(cases.values()), found).items()}
    again = {number: changed for number, case in cases.items() if (changed := unseen(case)[0]) is not case}
    lacking = {number: unseen(cases[number])[1] for number in again}
    left_out = {p.measured.row: p for p in predict_cases(again.values())}
    shipped = [_row(found[n], tables[n], network.get(n, 0.0), frozenset()) for n in found if _counts(found[n])]
    # taken as not seen, whatever the constants of other sources are
    others = [
        _row(left_out[n], tables[n], network.get(n, 0.0), lacking[n] | {"site"})
        for n in left_out
        if _counts(left_out[n])
    ]
    return shipped + others


def _counts(prediction: Prediction) -> bool:
    return prediction.error is not None and prediction.band is not None and scored(prediction)


def _row(prediction: Prediction, table: str, network: float, lacking: frozenset[str]) -> LearnRow:
    source = prediction.measured.word("source")
    band = prediction.band
    missing = lacking | frozenset(band.missing if band is not None else ())
    publisher = next((name for name in VENDORS if source.startswith(name)), publisher_of(source))
    return LearnRow(
        source, publisher, group_of(prediction), table, on_network(with_support(prediction.causes, missing), network),
        -log1p(prediction.error or 0.0), seen(prediction) and not lacking, missing,
    )  # fmt: skip


def groups(rows: Iterable[LearnRow]) -> list[list[LearnRow]]:
    found: dict[object, list[LearnRow]] = defaultdict(list)
    for row in rows:
        found[row.group, row.seen].append(row)
    return list(found.values())


def thinned(rows: Iterable[LearnRow], most: int) -> list[LearnRow]:
    """At most so many runs of a group: more say no more of how sites differ."""
    draw = np.random.default_rng(0)
    return [row for group in groups(rows) for row in (
        group if len(group) <= most else [group[i] for i in draw.choice(len(group), most, replace=False)]
    )]  # fmt: skip


def folds_of(rows: Sequence[LearnRow], number: int) -> dict[str, int]:
    """Which fold every publisher is left out in."""
    names = sorted({row.publisher for row in rows})
    order = np.random.default_rng(0).permutation(len(names))
    return {names[place]: at % number for at, place in enumerate(order)}


def weights_of(rows: Iterable[LearnRow], most: int) -> dict[str, float]:
    """A publisher counts as at most so many runs."""
    return {name: min(1.0, most / count) for name, count in Counter(row.publisher for row in rows).items()}


def arrays(rows: Sequence[LearnRow]) -> tuple[Floats, Floats]:
    return np.array([row.causes for row in rows]).reshape(len(rows), len(CAUSES)), np.array([r.surplus for r in rows])
