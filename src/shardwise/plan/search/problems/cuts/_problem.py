"""A graph of products as a problem: a point is the choice of every operation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import (
    BLOCK,
    ChoicePath,
    IntegerProgram,
    PointPrices,
    Signals,
)
from shardwise.plan.search.problems.cuts._graph import CutGraph
from shardwise.plan.search.problems.cuts._layouts import LAYOUTS
from shardwise.plan.search.problems.cuts._price import Assignment, CutCosts
from shardwise.step.estimate.machine import Machine

SLACK = 1.0 + 1e-6
"""on a limit of bytes: sums of floats, and what a solver takes as equal"""
UNCUT = ("whole", "replicated")
KEPT = 1 << len(LAYOUTS)
"""bit of a reader that needs the replicated value again in the backward pass; below it a bit for each layout of the
value, above it one for each layout of the gradient"""
SETS = 2 * KEPT * KEPT
"""of bits"""


class CutProblem(CutCosts):
    def __init__(self, graph: CutGraph, machine: Machine, accumulate: int = 1, most_bytes: float = np.inf) -> None:
        """accumulate: micro-batches whose weight gradients are added up before they are all-reduced; most_bytes: of
        weights on one rank."""
        super().__init__(graph, machine, accumulate)
        self.most_bytes = most_bytes

    def fixed(self, cuts: Mapping[str, str]) -> "CutProblem | None":
        """The same with some operations held to one choice, and no limit; None where one does not have it."""
        graph = self.graph.fixed(cuts)
        if graph is None:
            return None
        held = CutProblem(graph, self.machine, self.accumulate)
        held.share_layout_changes(self)
        return held

    @cached_property
    def _sizes(self) -> Ints:
        return np.array([len(op.choices) for op in self.graph.ops], dtype=np.int64)

    @cached_property
    def _own(self) -> list[Floats]:
        return [np.array(row) for row in self.own]

    @cached_property
    def _held(self) -> list[Floats]:
        return [np.array(row) for row in self.bytes]

    @cached_property
    def _tensors(self) -> "list[_TensorPrices]":
        return [_TensorPrices(self, name) for name in self.graph.tensors]

    @property
    def default(self) -> Ints:
        """Nothing is cut."""
        named = [[place for place, choice in enumerate(op.choices) if choice.name in UNCUT] for op in self.graph.ops]
        return np.array([places[0] if places else 0 for places in named], dtype=np.int64)

    @property
    def points(self) -> int:
        return prod(self._sizes.tolist())

    @cached_property
    def bound_s(self) -> float:
        """Every operation cut as if nothing had to travel."""
        return float(sum(min(row) for row in self.own))

    @property
    def positions(self) -> int:
        return len(self.graph.ops)

    @property
    def moves(self) -> tuple[str, ...]:
        return ("another cut", "the same cut")

    def price(self, points: Ints) -> PointPrices:
        """A point over the limit of weights is over by what is too much; one whose layouts do not divide, by 1 each."""
        columns = np.ascontiguousarray(points.T)
        between = self._between_s(columns)
        broken = np.isinf(between).sum(axis=0)
        seconds = np.where(np.isinf(between), 0.0, between).sum(axis=0)
        held = np.zeros(len(points))
        for own, bytes_, column in zip(self._own, self._held, columns, strict=True):
            seconds += own[column]
            if bytes_.any():
                held += bytes_[column]
        return PointPrices(seconds, self._over(held) + broken, seconds)

    def _over(self, held: Floats) -> Floats:
        if np.isinf(self.most_bytes):
            return np.zeros(len(held))
        too_much = held > self.most_bytes * SLACK
        return np.where(too_much, (held - self.most_bytes) / max(self.most_bytes, 1.0), 0.0)

    def _between_s(self, columns: Ints) -> Floats:
        """Tensors x points: seconds of the collectives that change a tensor's layout."""
        return np.array([tensor.seconds(columns) for tensor in self._tensors])

    def starts(self, size: int, rng: np.random.Generator) -> Ints:
        return rng.integers(self._sizes, size=(size, len(self._sizes)))

    def moved(self, points: Ints, move: Ints, one: Ints, other: Ints) -> Ints:
        """An operation takes another cut, which the number of the second picks; or the one that the second has."""
        points, rows = points.copy(), np.arange(len(points))
        size = self._sizes[one]
        further = 1 + other % np.maximum(size - 1, 1)
        alike = self._alike[other, points[rows, other], one]
        taken = np.where(move == 0, (points[rows, one] + further) % size, alike)
        points[rows, one] = np.where(taken < 0, points[rows, one], taken)
        return points

    @cached_property
    def _alike(self) -> Ints:
        """Operations x choices x operations: the choice of the last that has the same name; -1 where none has."""
        found = np.full((len(self._sizes), int(self._sizes.max()), len(self._sizes)), -1, dtype=np.int64)
        for place, op in enumerate(self.graph.ops):
            for index, choice in enumerate(op.choices):
                for other, second in enumerate(self.graph.ops):
                    same = [n for n, each in enumerate(second.choices) if each.name == choice.name]
                    found[place, index, other] = same[0] if same else -1
        return found

    def signals(self, points: Ints) -> Signals:
        """Of each operation: what its cut costs above its cheapest, and what its tensors cost on the way; of the second
        also whether the two share a tensor."""
        columns = np.ascontiguousarray(points.T)
        own = np.array([row[column] - row.min() for row, column in zip(self._own, columns, strict=True)]).T
        between = self._between_s(columns)
        moved = (np.where(np.isinf(between), 0.0, between).T) @ self._touches
        scale = max(float(self.price(self.default[None]).seconds[0]) / len(self._sizes), 1e-30)
        seen = np.stack([own / scale, moved / scale], axis=2)

        def second(one: Ints) -> Floats:
            return np.concatenate([seen, self._beside[one][:, :, None]], axis=2)

        return Signals(seen, second)

    @cached_property
    def _touches(self) -> Floats:
        """Tensors x operations: 1 where the operation makes or reads the tensor."""
        table = np.zeros((len(self.graph.tensors), len(self.graph.ops)))
        for row, name in zip(table, self.graph.tensors, strict=True):
            row[[self.graph.producer[name], *(place for place, _ in self.graph.consumers[name])]] = 1.0
        return table

    @cached_property
    def _beside(self) -> Floats:
        return np.minimum(self._touches.T @ self._touches, 1.0) - np.eye(len(self.graph.ops))

    def every(self) -> Iterator[Ints]:
        for start in range(0, self.points, BLOCK):
            numbers = np.arange(start, min(start + BLOCK, self.points))
            points = np.zeros((len(numbers), len(self._sizes)), dtype=np.int64)
            for place in np.flatnonzero(self._sizes > 1)[::-1]:
                numbers, points[:, place] = np.divmod(numbers, self._sizes[place])
            yield points

    def answer(self, points: Ints) -> Ints:
        return np.ascontiguousarray(points[:, self.graph.shown])

    def decomposition(self) -> ChoicePath | str:
        if not self.graph.is_chain:
            return f"{self.graph.name} is not a chain: an operation reads more than what the one before it made"
        between = tuple(
            np.array([[self.between(op.reads[0], before, [index]) for index in range(len(op.choices))]
                      for before in range(size)])
            for op, size in zip(self.graph.ops[1:], self._sizes.tolist(), strict=False)
        )  # fmt: skip
        return ChoicePath(
            own=tuple(self._own), between=between, held=tuple(self._held), most=self.most_bytes * SLACK,
            shown=tuple(op.shown for op in self.graph.ops),
        )  # fmt: skip

    def program(self, best_s: float) -> IntegerProgram | str:  # noqa: ARG002
        from shardwise.plan.search.problems.cuts._program import cut_program

        return cut_program(self)

    def names(self, assignment: Assignment) -> dict[str, str]:
        """The choice of each operation a user is told about."""
        chosen = zip(self.graph.ops, assignment, strict=True)
        return {op.name: op.choices[index].name for op, index in chosen if op.shown}


@dataclass
class _TensorPrices:
    """Seconds of one tensor for many points at once.

    What its readers ask is a set of bits, so that any number of readers comes to one number."""

    costs: CutCosts
    name: str

    def __post_init__(self) -> None:
        graph = self.costs.graph
        self.producer = graph.producer[self.name]
        self.asked = [
            (place, np.array([self._bits(user, index) for index in range(len(graph.ops[place].choices))]))
            for user, (place, _) in enumerate(graph.consumers[self.name])
        ]
        self.known = np.full(len(graph.ops[self.producer].choices) * SETS, np.nan)

    def _bits(self, user: int, index: int) -> int:
        reader = self.costs.reader(self.name, user, index)
        again = KEPT if reader.kept and reader.value == "replicated" else 0
        return (1 << LAYOUTS.index(reader.value)) | again | (2 * KEPT << LAYOUTS.index(reader.gradient))

    def seconds(self, columns: Ints) -> Floats:
        key = columns[self.producer] * SETS
        for place, bits in self.asked:
            key = key | bits[columns[place]]
        found = self.known[key]
        new = np.isnan(found)
        if new.any():
            for each in np.unique(key[new]).tolist():
                self.known[each] = self._looked_up(each)
            found = self.known[key]
        return np.asarray(found)

    def _looked_up(self, key: int) -> float:
        index, bits = divmod(key, SETS)
        given = self.costs.choice(self.producer, index).output
        assert given is not None
        read = frozenset(layout for n, layout in enumerate(LAYOUTS) if bits >> n & 1)
        back = frozenset(layout for n, layout in enumerate(LAYOUTS) if bits // (2 * KEPT) >> n & 1)
        spread = self.costs.spread(self.name, given.value, (read, bool(bits & KEPT)))
        return spread[0] + self.costs.gathered(self.name, given.gradient, back)[0]
