"""Integer programming on any graph: HiGHS, through scipy.

One yes-or-no says that an operation takes a choice. For every tensor one variable says from which layout its value
spreads and to which set of layouts (with the price of the cheapest tree), another does so for its gradients; the sets
are just what the choices read and give. With the choices whole, these are whole by themselves. The next best cut is the
best with all cuts found so far forbidden.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardwise.search.cuts._graph import Input
from shardwise.search.cuts._layouts import Layout
from shardwise.search.cuts._price import SLACK, Assignment, Problem, Wanted, together

SCALE = 1e6
"""the objective in microseconds, so that the solver's tolerances are far below a cost"""
INFEASIBLE = 2
OPTIMAL = 0
LIMIT_S = 60.0


def best(problem: Problem, count: int = 1, most_bytes: float = np.inf) -> list[Assignment]:
    """The `count` best assignments that differ in what is shown, best first."""
    rows = _Rows(problem, most_bytes)
    found: list[Assignment] = []
    while len(found) < count:
        assignment = rows.solved()
        if assignment is None:
            break
        found.append(assignment)
        shown = [rows.columns_of[place][assignment[place]] for place in problem.graph.shown]
        rows.row(dict.fromkeys(shown, 1.0), -np.inf, len(shown) - 1)
    return sorted(found, key=lambda assignment: problem.price(assignment).seconds)


class _Rows:
    """The program, row by row."""

    def __init__(self, problem: Problem, most_bytes: float) -> None:
        self.problem = problem
        self.cost: list[float] = []
        self.columns_of = [[self._column(seconds) for seconds in row] for row in problem.own]
        self.choices = len(self.cost)
        self.entries: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []
        for columns in self.columns_of:
            self.row(dict.fromkeys(columns, 1.0), 1, 1)
        for name in problem.graph.tensors:
            self._values(name)
            self._gradients(name)
        if np.isfinite(most_bytes):
            held = zip(self.columns_of, problem.bytes, strict=True)
            unit = max(most_bytes, 1.0)
            weights = {c: b / unit for columns, row in held for c, b in zip(columns, row, strict=True)}
            self.row(weights, -np.inf, most_bytes / unit * SLACK)

    def _column(self, seconds: float) -> int:
        self.cost.append(seconds * SCALE)
        return len(self.cost) - 1

    def row(self, entries: dict[int, float], low: float, high: float) -> None:
        self.entries += [(len(self.low), column, value) for column, value in entries.items()]
        self.low.append(low)
        self.high.append(high)

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

    def _values(self, tensor: str) -> None:
        readers = self._readers(tensor)
        sets: set[Wanted] = {(frozenset(), False)}
        for asked in readers:
            sets = {_joined(known, together([reader])[0]) for known in sets for reader in asked}
        columns: dict[tuple[Layout, Wanted], int] = {}
        for start in dict.fromkeys(value for value, _, _ in self._given(tensor)):
            for wanted in sorted(sets, key=str):
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

    def _gradients(self, tensor: str) -> None:
        readers = self._readers(tensor)
        sets: set[frozenset[Layout]] = {frozenset()}
        for asked in readers:
            sets = {known | {reader.gradient} for known in sets for reader in asked}
        columns: dict[tuple[Layout, frozenset[Layout]], int] = {}
        for end in dict.fromkeys(gradient for _, gradient, _ in self._given(tensor)):
            for given in sorted(sets, key=str):
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
            self.row(entries | {column: -1.0 for held, column in produced if held == layout}, 0, 0)

    def _no_more(
        self, columns: dict[tuple[Layout, frozenset[Layout]], int], readers: list[dict[Input, list[int]]]
    ) -> None:
        """A larger set of gradients can be cheaper: a sum that is reduced anyway takes slices along for free."""
        for layout in {layout for _, given in columns for layout in given}:
            giving = {c: 1.0 for asked in readers for r, cs in asked.items() if r.gradient == layout for c in cs}
            self._cover(list(giving), [c for (_, given), c in columns.items() if layout in given])

    def _cover(self, covering: list[int], choices: list[int]) -> None:
        self.row(dict.fromkeys(covering, 1.0) | dict.fromkeys(choices, -1.0), 0, np.inf)

    def solved(self) -> Assignment | None:
        try:
            from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
            from scipy.sparse import csr_array  # type: ignore[import-untyped]
        except ImportError:
            raise ValueError("method: ip needs scipy; install shardwise[fit], or write --method exhaustive") from None
        size = len(self.cost)
        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        table = csr_array((values, (rows, columns)), shape=(len(self.low), size))
        whole = (np.arange(size) < self.choices).astype(np.float64)
        result = milp(
            np.array(self.cost), integrality=whole, bounds=Bounds(0, 1),
            constraints=LinearConstraint(table, np.array(self.low), np.array(self.high)),
            options={"mip_rel_gap": 0.0, "time_limit": LIMIT_S},
        )  # fmt: skip
        if result.status == INFEASIBLE:
            return None
        if result.status != OPTIMAL:
            raise ValueError(f"method: HiGHS found no proof in {LIMIT_S:g} s; write a smaller graph, or --method dp")
        return tuple(int(np.argmax(result.x[columns])) for columns in self.columns_of)


def _joined(one: Wanted, other: Wanted) -> Wanted:
    return one[0] | other[0], one[1] or other[1]
