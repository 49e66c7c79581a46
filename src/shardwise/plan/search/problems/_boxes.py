"""Items in boxes: what rank placement and expert placement have in common.

A point names the box of each item; each box has its room, and all of it is filled (spare items lie in what would be
empty). The one move swaps the boxes of two items, so every point stays legal.
"""

from collections.abc import Iterator
from math import factorial, prod

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import in_blocks


class Boxes:
    room: tuple[int, ...]
    """items each box takes"""

    @property
    def positions(self) -> int:
        return sum(self.room)

    @property
    def moves(self) -> tuple[str, ...]:
        return ("swap",)

    @property
    def default(self) -> Ints:
        """Items in their own order, box after box."""
        return np.repeat(np.arange(len(self.room)), self.room)

    @property
    def points(self) -> int:
        return factorial(self.positions) // prod(factorial(room) for room in self.room)

    def starts(self, size: int, rng: np.random.Generator) -> Ints:
        return rng.permuted(np.tile(self.default, (size, 1)), axis=1)

    def moved(self, points: Ints, move: Ints, one: Ints, other: Ints) -> Ints:  # noqa: ARG002
        points, rows = points.copy(), np.arange(len(points))
        points[rows, one], points[rows, other] = points[rows, other], points[rows, one]
        return points

    def every(self) -> Iterator[Ints]:
        """Every way to fill the boxes, as permutations of equal things."""
        left, point = list(self.room), np.zeros(self.positions, dtype=np.int64)

        def fill(item: int) -> Iterator[Ints]:
            if item == len(point):
                yield point.copy()
                return
            for box, free in enumerate(left):
                if free:
                    left[box] -= 1
                    point[item] = box
                    yield from fill(item + 1)
                    left[box] += 1

        return in_blocks(fill(0))

    def answer(self, points: Ints) -> Ints:
        return points
