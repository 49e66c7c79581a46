"""What a graph must say about itself.

A graph is a sequence of doubly stochastic matrices that repeats: W[i, j] is the weight worker i gives to what worker j
sent. Workers average with the matrix of their step, so one with few edges may still reach everyone over a period.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
SMALL = 1e-12
"""below this a difference between weights is rounding"""


@dataclass(frozen=True)
class MixingRound:
    """One exchange, by receiver and by sender."""

    sources: tuple[tuple[int, ...], ...]
    """sources[i]: whom worker i hears, in ascending order"""
    weights: tuple[tuple[float, ...], ...]
    """weights[i]: the weight of each of them; the rest is worker i's own"""
    targets: tuple[tuple[int, ...], ...]
    """targets[i]: to whom worker i sends"""


@dataclass(frozen=True)
class GossipTopology(ABC):
    name: ClassVar[str]
    symmetric: ClassVar[bool]
    """who hears whom is heard by them, with the same weight"""
    static: ClassVar[bool]
    """the same graph at every step"""

    def check(self, n: int) -> None:
        """Refuses numbers of workers the graph does not exist for."""
        if n < 1:
            raise ValueError(f"workers: {n} is out of range; write a whole number of 1 or more")

    @abstractmethod
    def _matrices(self, n: int) -> list[Matrix]:
        """The matrices of one period, n at least 2."""

    def matrices(self, n: int) -> list[Matrix]:
        return _matrices_of(self, n)

    def rounds(self, n: int) -> tuple[MixingRound, ...]:
        return _rounds_of(self, n)

    def round(self, n: int, step: int) -> MixingRound:
        rounds = _rounds_of(self, n)
        return rounds[step % len(rounds)]

    def period(self, n: int) -> int:
        return len(self.matrices(n))

    def degree(self, n: int) -> int:
        """The most messages a worker sends in a step."""
        return max((len(targets) for r in self.rounds(n) for targets in r.targets), default=0)

    def product(self, n: int) -> Matrix:
        """What a whole period does."""
        whole = np.eye(n)
        for matrix in self.matrices(n):
            whole = matrix @ whole
        return whole

    def rho(self, n: int) -> float:
        """How much disagreement is left after a step: the norm of W - 1/n; of a period, its mean per step."""
        left = float(np.linalg.norm(self.product(n) - 1.0 / n, 2))
        return float(left ** (1.0 / self.period(n))) if left > SMALL else 0.0

    def gap(self, n: int) -> float:
        return 1.0 - self.rho(n)

    def exact(self, n: int) -> bool:
        """Everyone holds the mean of all after one period."""
        return bool(np.abs(self.product(n) - 1.0 / n).max() < 1e-9)


@lru_cache(maxsize=256)
def _matrices_of(topology: GossipTopology, n: int) -> list[Matrix]:
    topology.check(n)
    return [np.eye(1)] if n == 1 else topology._matrices(n)


@lru_cache(maxsize=256)
def _rounds_of(topology: GossipTopology, n: int) -> tuple[MixingRound, ...]:
    return tuple(map(_round_of, _matrices_of(topology, n)))


def _round_of(matrix: Matrix) -> MixingRound:
    away = matrix * (1.0 - np.eye(len(matrix)))
    heard = [np.flatnonzero(row > SMALL) for row in away]
    return MixingRound(
        sources=tuple(tuple(h.tolist()) for h in heard),
        weights=tuple(tuple(matrix[i, h].tolist()) for i, h in enumerate(heard)),
        targets=tuple(tuple(np.flatnonzero(column > SMALL).tolist()) for column in away.T),
    )


def metropolis(n: int, edges: set[tuple[int, int]]) -> Matrix:
    """Weights of an undirected graph: 1 / (1 + the larger degree of the two), the rest stays at home."""
    both = {(i, j) for i, j in edges if i != j} | {(j, i) for i, j in edges if i != j}
    degree = np.zeros(n, dtype=np.int64)
    for i, _ in both:
        degree[i] += 1
    matrix = np.zeros((n, n))
    for i, j in both:
        matrix[i, j] = 1.0 / (1 + max(degree[i], degree[j]))
    matrix[np.arange(n), np.arange(n)] = 1.0 - matrix.sum(axis=1)
    return matrix


def most_square(n: int) -> tuple[int, int]:
    """Rows and columns that hold n, as near to each other as the divisors allow."""
    rows = next(r for r in range(int(n**0.5), 0, -1) if n % r == 0)
    return rows, n // rows


def hops(n: int) -> list[int]:
    """1, 2, 4, ... below n."""
    return [2**p for p in range((n - 1).bit_length())]
