"""Fits settings of a stack to measured rows, and says how well they predict groups of rows that took no part.

Errors are nearly linear in the settings over a short way, so each round solves a linear programme for the objective
(mean |error| + 0.3 |mean error|) with the slopes of that place, and goes there as far as the objective really falls.
A fold starts from the defaults of a stack, never from the shipped constants: those have seen the rows held out.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix, eye_array, hstack, vstack  # type: ignore[import-untyped]

from _accuracy_bounds import bound_of
from _accuracy_data import Floats, Rows, group_of, memory_errors, time_errors
from shardwise.measured.validate.predict import Prediction
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.software import Stack

BIAS_WEIGHT = 0.3
PULL = 0.003
"""cost of moving a setting from its default over its whole range: one the rows cannot tell stays where it is"""
SLOPE_STEP = 0.02
MOST_ROUNDS = 8
SMALLEST_TRUST = 0.01
ASLEEP = 1e-4
"""a setting whose first step changes the mean error by less than this shows no way to go"""

Key = Callable[[MeasuredRow], tuple[str, ...]]
Errors = Callable[[Iterable[Prediction]], Floats]


@dataclass(frozen=True)
class Fold:
    settings: dict[str, float]
    held_out: list[Prediction]
    """predictions of the rows this fold did not see"""


def objective(errors: Floats) -> float:
    return float(np.abs(errors).mean() + BIAS_WEIGHT * abs(errors.mean()))


def default_of(setting: str) -> float:
    return float(Stack(name="", summary="", source="", date="").setting(setting))


def defaults(stack: Stack) -> dict[str, float]:
    """Where a fit starts that must not know the answer: the defaults of every stack, within the bounds."""
    return {name: bound_of(name).value(bound_of(name).unit(default_of(name))) for name in stack.fitted}


def current(stack: Stack) -> dict[str, float]:
    return {name: float(stack.setting(name)) for name in stack.fitted}


def fit(rows: Rows, start: dict[str, float]) -> dict[str, float]:
    """The fitted settings: those of time on step times, then those of memory on peaks.

    A setting that changes nothing at the start (a launch cost below the device's own time) would stay there for ever:
    it starts in the middle of its range, and the pull brings it back where the rows do not hold it."""
    rows = weighed(rows.teaching())
    asleep = [name for name in start if not bound_of(name).memory and _changes_nothing(rows, start, name)]
    return _fit_from(rows, start | {name: bound_of(name).value(0.5) for name in asleep})


def weighed(rows: Rows) -> Rows:
    """Where the stack is fitted evenly, rows of smaller sources are repeated until they weigh about as the largest."""
    if not rows.stack.fitted_evenly:
        return rows
    sizes = Counter(case.measured.word("source") for case in rows.cases)
    most = max(sizes.values())
    return Rows(rows.stack, tuple(c for c in rows.cases for _ in range(most // sizes[c.measured.word("source")])))


def _changes_nothing(rows: Rows, start: dict[str, float], name: str) -> bool:
    bound = bound_of(name)
    place = bound.unit(start[name])
    moved = bound.value(place + SLOPE_STEP if place <= 0.5 else place - SLOPE_STEP)
    change = time_errors(rows.predict(start | {name: moved})) - time_errors(rows.predict(start))
    return float(np.abs(change).mean()) < ASLEEP


def _fit_from(rows: Rows, start: dict[str, float]) -> dict[str, float]:
    of_time = [name for name in start if not bound_of(name).memory]
    of_memory = [name for name in start if bound_of(name).memory]
    found = dict(start)
    with_memory = rows.with_memory()
    for part, names, errors_of in ((rows, of_time, time_errors), (with_memory, of_memory, memory_errors)):
        if names and part.cases:
            # The pull comes second: at its default a setting may be hidden behind another and show no slope at all.
            found = _descend(part, names, found, errors_of, pull=0.0, rounds=MOST_ROUNDS)
            found = _descend(part, names, found, errors_of, pull=PULL, rounds=MOST_ROUNDS // 2)
    return found


def _descend(
    rows: Rows, names: list[str], start: dict[str, float], errors_of: Errors, *, pull: float, rounds: int
) -> dict[str, float]:
    bounds = [bound_of(name) for name in names]

    def settings(place: Floats) -> dict[str, float]:
        return start | {n: b.value(float(u)) for n, b, u in zip(names, bounds, place, strict=True)}

    def errors(place: Floats) -> Floats:
        return errors_of(rows.predict(settings(place)))

    origin = np.array([b.unit(default_of(n)) for n, b in zip(names, bounds, strict=True)])

    def cost(place: Floats, found: Floats) -> float:
        return objective(found) + pull * float(np.abs(place - origin).sum())

    place = np.array([b.unit(start[n]) for n, b in zip(names, bounds, strict=True)])
    here, trust = errors(place), 0.3
    for _ in range(rounds):
        slopes = _slopes(errors, place, here)
        before = cost(place, here)
        while trust >= SMALLEST_TRUST:
            there = np.clip(place + _direction(here, slopes, place, origin, trust, pull), 0.0, 1.0)
            found = errors(there)
            if cost(there, found) < before:
                place, here = there, found
                trust = min(trust * 1.5, 0.5)
                break
            trust *= 0.4
        if trust < SMALLEST_TRUST or before - cost(place, here) < 1e-4:
            break
    return settings(place)


def _slopes(errors: Callable[[Floats], Floats], place: Floats, here: Floats) -> Floats:
    columns = []
    for axis in range(len(place)):
        step = SLOPE_STEP if place[axis] <= 0.5 else -SLOPE_STEP
        moved = place.copy()
        moved[axis] += step
        columns.append((errors(moved) - here) / step)
    return np.stack(columns, axis=1)


def _direction(here: Floats, slopes: Floats, place: Floats, origin: Floats, trust: float, pull: float) -> Floats:
    """Minimises the cost of here + slopes d over |d| <= trust.

    Variables: d, then bounds from above of every row's |error|, of |bias|, and of every setting's way from its default.
    """
    count, width = slopes.shape
    linear = csr_matrix(np.concatenate([slopes, slopes.mean(axis=0)[None], np.eye(width)]))
    constant = np.concatenate([here, [here.mean()], place - origin])
    above = eye_array(len(constant))
    limits = vstack([hstack([linear, -above]), hstack([-linear, -above])])
    weights = np.concatenate([np.full(count, 1 / count), [BIAS_WEIGHT], np.full(width, pull)])
    moves = [(max(-trust, -float(u)), min(trust, 1.0 - float(u))) for u in place]
    found = linprog(
        np.concatenate([np.zeros(width), weights]), A_ub=limits, b_ub=np.concatenate([-constant, constant]),
        bounds=moves + [(0, None)] * len(constant), method="highs",
    )  # fmt: skip
    return np.asarray(found.x[:width]) if found.x is not None else np.zeros(width)


def fold_numbers(rows: Rows, folds: int, key: Key = group_of) -> list[int]:
    """A fold for every row: groups in the order of a hash, each to the fold that has the fewest rows so far."""
    sizes = Counter(key(case.measured) for case in rows.cases)
    filled = [0] * min(folds, len(sizes))
    where = {}
    for group in sorted(sizes, key=lambda g: hashlib.sha256("|".join(g).encode()).digest()):
        where[group] = int(np.argmin(filled))
        filled[where[group]] += sizes[group]
    return [where[key(case.measured)] for case in rows.cases]


def cross_validate(rows: Rows, folds: int, key: Key = group_of, jobs: int = 1) -> list[Fold]:
    """`jobs` processes share the folds."""
    numbers = fold_numbers(rows, folds, key)
    parts = [
        (rows.take(n != fold for n in numbers), rows.take(n == fold for n in numbers))
        for fold in range(max(numbers) + 1)
    ]
    if jobs == 1:
        return [_held_out(*part) for part in parts]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(_held_out, *zip(*parts, strict=True)))


def _held_out(seen: Rows, unseen: Rows) -> Fold:
    settings = fit(seen, defaults(seen.stack))
    return Fold(settings, unseen.predict(settings))
