"""Counts what a method looks at, keeps the best, and tells whoever watches."""

import time
from collections.abc import Callable

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import Problem

Progress = Callable[[int, float], None]
"""(points priced, best so far)"""
WORST_OVER = 10.0
"""what a point over a limit costs beside its time, per share of the limit it is over"""
ROUNDING = 1e-8
"""share by which two prices may differ and be the same"""


class Meter:
    """All pricing of a method goes through here, so that its count of evaluations is true."""

    def __init__(self, problem: Problem, budget: int, progress: Progress | None = None, count: int = 1) -> None:
        self.problem, self.budget, self.progress, self.count = problem, budget, progress, count
        self.evaluations = 0
        self._kept: dict[bytes, tuple[float, Ints]] = {}
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

    @property
    def ranked(self) -> list[tuple[float, Ints]]:
        """The best different answers so far, at most as many as asked for, best first."""
        return sorted(self._kept.values(), key=lambda kept: kept[0])

    @property
    def best(self) -> float:
        return min((price for price, _ in self._kept.values()), default=np.inf)

    @property
    def point(self) -> Ints | None:
        return self.ranked[0][1] if self._kept else None

    @property
    def cutoff(self) -> float:
        """A point that costs this or more is none of the answers asked for."""
        return np.inf if len(self._kept) < self.count else max(price for price, _ in self._kept.values())

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
            self.trace.append((self.evaluations + first + 1, self.seconds, float(usable[first])))
        self._keep(points, usable)
        self.evaluations += len(points)
        self.tell()
        raised = np.where(found.over > 0, 2.0 + WORST_OVER * found.over, 1.0)
        return found.seconds * raised, found.guide * raised

    def _keep(self, points: Ints, usable: Floats) -> None:
        near = np.flatnonzero(usable < self.cutoff)
        if not len(near):
            return
        answers = self.problem.answer(points[near])
        for place in np.argsort(usable[near], kind="stable"):
            price, key = float(usable[near[place]]), answers[place].tobytes()
            if price >= self.cutoff:
                return
            if key not in self._kept or price < self._kept[key][0]:
                self._kept[key] = (price, points[near[place]].copy())
            if len(self._kept) > self.count:
                del self._kept[max(self._kept, key=lambda each: self._kept[each][0])]

    def prefer(self, point: Ints) -> None:
        """Takes a point in place of the best if it is as good up to rounding."""
        if not self.left:
            return
        found, best = self.problem.price(point[None]), self.best
        self.evaluations += 1
        if found.over[0] == 0 and found.seconds[0] <= best * (1.0 + ROUNDING):
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > best}
            self._kept[self.problem.answer(point[None])[0].tobytes()] = (float(found.seconds[0]), point.copy())

    def bounded(self, bound: float) -> None:
        """Notes a bound, never above what was found."""
        if np.isfinite(bound):
            self.bound = max(self.bound or 0.0, min(bound, self.best))

    def tell(self) -> None:
        if self.progress is not None:
            self.progress(self.evaluations, self.best)
