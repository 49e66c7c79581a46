"""Counts what a method looks at, keeps the best, and tells whoever watches."""

import time
from collections.abc import Callable

import numpy as np

from shardwise.search.problems import Floats, Ints, Problem

Progress = Callable[[int, float], None]
"""(points priced, best so far)"""
WORST_OVER = 10.0
"""what a point over a limit costs beside its time, per share of the limit it is over"""


class Meter:
    """All pricing of a method goes through here, so that its count of evaluations is true."""

    def __init__(self, problem: Problem, budget: int, progress: Progress | None) -> None:
        self.problem, self.budget, self.progress = problem, budget, progress
        self.evaluations = 0
        self.best = np.inf
        self.point: Ints | None = None
        self.trace: list[tuple[int, float, float]] = []
        """(evaluations, seconds since the start, objective) at each improvement"""
        self.bound: float | None = None
        """no point can cost less than this"""
        self.proven = False
        self._start = time.perf_counter()

    @property
    def left(self) -> int:
        return self.budget - self.evaluations

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def price(self, points: Ints) -> tuple[Floats, Floats]:
        """(what each point costs, the same with softened maxima), both raised where the point breaks a limit.

        Never more points than `left`.
        """
        if len(points) > self.left:
            raise RuntimeError(f"{len(points)} points to price, {self.left} left in the budget")
        found = self.problem.price(points)
        usable = np.where(found.over > 0, np.inf, found.seconds)
        first = int(np.argmin(usable))
        if usable[first] < self.best:
            self.best, self.point = float(usable[first]), points[first].copy()
            self.trace.append((self.evaluations + first + 1, self.seconds, self.best))
        self.evaluations += len(points)
        self.tell()
        raised = np.where(found.over > 0, 2.0 + WORST_OVER * found.over, 1.0)
        return found.seconds * raised, found.guide * raised

    def bounded(self, bound: float) -> None:
        """Notes a bound, never above what was found."""
        if np.isfinite(bound):
            self.bound = max(self.bound or 0.0, min(bound, self.best))

    def tell(self) -> None:
        if self.progress is not None:
            self.progress(self.evaluations, self.best)
