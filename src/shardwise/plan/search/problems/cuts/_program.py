"""The cuts of a graph as an integer program.

One yes-or-no says that an operation takes a choice. For every tensor one variable says from which layout its value
spreads and to which set of layouts (with the price of the cheapest tree), another does so for its gradients; the sets
are just what the choices read and give. With the choices whole, these are whole by themselves.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import IntegerProgram
from shardwise.plan.search.problems._rows import ProgramRows
from shardwise.plan.search.problems.cuts._graph import Input
from shardwise.plan.search.problems.cuts._layouts import Layout
from shardwise.plan.search.problems.cuts._price import Wanted, together
from shardwise.plan.search.problems.cuts._problem import SLACK, CutProblem

SCALE = 1e6
"""the objective in microseconds, so that the solver's tolerances are far below a cost"""


def cut_program(problem: CutProblem) -> IntegerProgram:
    rows = _CutRows(problem)
    size, choices = len(rows.cost), rows.columns_of
    shown = problem.graph.shown

    def point(x: Floats) -> Ints:
        return np.array([int(np.argmax(x[columns])) for columns in choices], dtype=np.int64)

    def answer(chosen: Ints) -> Ints:
        return np.array([choices[place][chosen[place]] for place in shown], dtype=np.int64)

    return rows.program(
        np.array(rows.cost), (np.arange(size) < rows.choices).astype(np.int64), np.zeros(size), np.ones(size), point,
        lambda bound: bound / SCALE, answer,
    )  # fmt: skip


class _CutRows(ProgramRows):
    """Columns: choices of each operation, ways of each tensor's value, ways of its gradients."""

    def __init__(self, problem: CutProblem) -> None:
        super().__init__()
        self.problem = problem
        self.cost: list[float] = []
        self.columns_of = [[self._column(seconds) for seconds in row] for row in problem.own]
        self.choices = len(self.cost)
        for columns in self.columns_of:
            self._row(dict.fromkeys(columns, 1.0), 1, 1)
        for name in problem.graph.tensors:
            self._value_ways(name)
            self._gradient_ways(name)
        if np.isfinite(problem.most_bytes):
            held = zip(self.columns_of, problem.bytes, strict=True)
            unit = max(problem.most_bytes, 1.0)
            weights = {c: b / unit for columns, row in held for c, b in zip(columns, row, strict=True)}
            self._row(weights, -np.inf, problem.most_bytes / unit * SLACK)

    def _column(self, seconds: float) -> int:
        self.cost.append(seconds * SCALE)
        return len(self.cost) - 1

    def _row(self, entries: dict[int, float], low: float, high: float) -> None:
        columns = np.array(list(entries), dtype=np.int64)
        self.row([(columns, np.array(list(entries.values())))], low, high)

    def _readers(self, tensor: str) -> list[dict[Input, list[int]]]:
        """For each consumer: what it may ask, and the choices that do."""
        found = []
        for user, (place, _) in enumerate(self.problem.graph.consumers[tensor]):
            asked: dict[Input, list[int]] = {}
            for index, column in enumerate(self.columns_of[place]):
                asked.setdefault(self.problem.reader(tensor, user, index), []).append(column)
            found.append(asked)
        return found

    def _given(self, tensor: str) -> Iterator[tuple[Layout, Layout, int]]:
        """Layout of the value, of the gradient, and column of each of the producer's choices."""
        place = self.problem.graph.producer[tensor]
        for index, column in enumerate(self.columns_of[place]):
            output = self.problem.choice(place, index).output
            assert output is not None
            yield output.value, output.gradient, column

    def _value_ways(self, tensor: str) -> None:
        readers = self._readers(tensor)
        sets: set[Wanted] = {(frozenset(), False)}
        for asked in readers:
            sets = {_joined(known, together([reader])[0]) for known in sets for reader in asked}
        columns: dict[tuple[Layout, Wanted], int] = {}
        for start in dict.fromkeys(value for value, _, _ in self._given(tensor)):
            for wanted in sorted(sets, key=lambda each: (sorted(each[0]), each[1])):
                seconds = self.problem.spread(tensor, start, wanted)[0]
                if np.isfinite(seconds):
                    columns[start, wanted] = self._column(seconds)
        self._balance(columns, [(value, column) for value, _, column in self._given(tensor)])
        for asked in readers:
            needs: dict[Wanted, list[int]] = {}
            for reader, choices in asked.items():
                needs.setdefault(together([reader])[0], []).extend(choices)
            for (layouts, kept), choices in needs.items():
                covering = [c for (_, (has, keeps)), c in columns.items() if layouts <= has and keeps >= kept]
                self._cover(covering, choices)

    def _gradient_ways(self, tensor: str) -> None:
        readers = self._readers(tensor)
        sets: set[frozenset[Layout]] = {frozenset()}
        for asked in readers:
            sets = {known | {reader.gradient} for known in sets for reader in asked}
        columns: dict[tuple[Layout, frozenset[Layout]], int] = {}
        for end in dict.fromkeys(gradient for _, gradient, _ in self._given(tensor)):
            for given in sorted(sets, key=sorted):
                seconds = self.problem.gathered(tensor, end, given)[0]
                if np.isfinite(seconds):
                    columns[end, given] = self._column(seconds)
        self._balance(columns, [(gradient, column) for _, gradient, column in self._given(tensor)])
        for asked in readers:
            needs: dict[Layout, list[int]] = {}
            for reader, choices in asked.items():
                needs.setdefault(reader.gradient, []).extend(choices)
            for layout, choices in needs.items():
                self._cover([c for (_, given), c in columns.items() if layout in given], choices)
        self._no_more(columns, readers)

    def _balance(self, columns: Any, produced: list[tuple[Layout, int]]) -> None:
        """As much spreads from a layout as is produced in it."""
        for layout in dict.fromkeys(held for held, _ in produced):
            entries = {column: 1.0 for (held, _), column in columns.items() if held == layout}
            self._row(entries | {column: -1.0 for held, column in produced if held == layout}, 0, 0)

    def _no_more(
        self, columns: dict[tuple[Layout, frozenset[Layout]], int], readers: list[dict[Input, list[int]]]
    ) -> None:
        """A larger set of gradients can be cheaper: a sum that is reduced anyway takes slices along for free."""
        for layout in sorted({layout for _, given in columns for layout in given}):
            giving = {c: 1.0 for asked in readers for r, cs in asked.items() if r.gradient == layout for c in cs}
            self._cover(list(giving), [c for (_, given), c in columns.items() if layout in given])

    def _cover(self, covering: list[int], choices: list[int]) -> None:
        self._row(dict.fromkeys(covering, 1.0) | dict.fromkeys(choices, -1.0), 0, np.inf)


def _joined(one: Wanted, other: Wanted) -> Wanted:
    return one[0] | other[0], one[1] or other[1]
