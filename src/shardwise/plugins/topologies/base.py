"""Base-(k+1): at most k neighbours a step and the exact mean after finitely many steps, for any n.

Takezawa et al. 2023, arXiv:2305.11420. Blocks of a power of k + 1 average inside themselves, digit by digit. Then the
smaller parts are matched one to one into every larger block, with the weight that brings both sides' means to that of
all, and the blocks spread what they received.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from shardwise.plugins.topologies._contract import GossipTopology, Matrix

Workers = Sequence[int]
Edges = list[tuple[int, int, float]]


@dataclass(frozen=True)
class Base(GossipTopology):
    name: ClassVar[str] = "base"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = False

    degree_limit: int = 1
    """the most neighbours of a worker in a step; 1 is the cheapest"""

    def __post_init__(self) -> None:
        if not 1 <= self.degree_limit <= 64:
            raise ValueError(f"degree_limit: {self.degree_limit} is out of range; write a whole number from 1 to 64")

    def _matrices(self, n: int) -> list[Matrix]:
        plain = _mean_of(range(n), self.degree_limit)
        whole = prod(_smooth_factors(n, self.degree_limit + 1))
        rest = n // whole
        if whole > 1:
            # every worker of a smooth part has one counterpart in each of the other parts
            parts = [_mean_of(range(p, n, whole), self.degree_limit) for p in range(whole)]
            across = [_digits(range(r * whole, (r + 1) * whole), self.degree_limit + 1) for r in range(rest)]
            split = _beside(parts) + _beside(across)
            plain = min(plain, split, key=len)
        return [_matrix(n, edges) for edges in plain]


def _smooth_factors(n: int, most: int) -> list[int]:
    """Factors of n up to `most`, largest first; what is left over has none."""
    found = []
    for factor in range(most, 1, -1):
        while n % factor == 0:
            found.append(factor)
            n //= factor
    return found


def _digits(workers: Workers, most: int) -> list[Edges]:
    """The mean of a group whose size has only factors up to `most`: one round per factor."""
    rounds, stride = [], 1
    for factor in _smooth_factors(len(workers), most):
        edges = []
        for place in range(len(workers)):
            digit = place // stride % factor
            mates = [place + (other - digit) * stride for other in range(digit + 1, factor)]
            edges += [(workers[place], workers[mate], 1.0 / factor) for mate in mates]
        rounds.append(edges)
        stride *= factor
    return rounds


def _mean_of(workers: Workers, k: int) -> list[Edges]:
    """Parts by the digits of n in base k + 1 first average inside; then each in turn meets all smaller parts."""
    parts = _parts(workers, k + 1)
    inside = _beside([_digits([worker for block in part for worker in block], k + 1) for part in parts])
    later: list[list[Edges]] = []
    for turn, part in enumerate(parts[:-1]):
        smaller = [worker for other in parts[turn + 1 :] for block in other for worker in block]
        size = len(part[0])
        weight = size / (len(part) * size + len(smaller))
        meet = [(worker, block[place], weight) for place, worker in enumerate(smaller) for block in part]
        idle: list[Edges] = [[] for _ in range(turn)]
        later.append([*idle, meet, *_beside([_digits(block, k + 1) for block in part])])
    return inside + (_beside(later) if later else [])


def _parts(workers: Workers, most: int) -> list[list[Workers]]:
    """n = a_1 most^p_1 + a_2 most^p_2 + ...: for each term its blocks of most^p workers, largest first."""
    parts, start = [], 0
    size = most ** (len(workers).bit_length())
    while start < len(workers):
        count = (len(workers) - start) // size
        if count:
            parts.append([workers[start + b * size : start + (b + 1) * size] for b in range(count)])
            start += count * size
        size //= most
    return parts


def _beside(groups: list[list[Edges]]) -> list[Edges]:
    """Groups that share no worker run their rounds at the same time."""
    length = max(map(len, groups))
    return [[edge for rounds in groups if t < len(rounds) for edge in rounds[t]] for t in range(length)]


def _matrix(n: int, edges: Edges) -> Matrix:
    matrix = np.zeros((n, n))
    for i, j, weight in edges:
        matrix[i, j] = matrix[j, i] = weight
    matrix[np.arange(n), np.arange(n)] = 1.0 - matrix.sum(axis=1)
    return matrix


TOPOLOGY = Base
