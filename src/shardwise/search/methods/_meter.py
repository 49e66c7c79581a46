"""Counts what a method looks at, keeps the best, and tells whoever watches."""

from collections.abc import Callable

import numpy as np

from shardwise.search.methods._problem import Floats, Ints, StageProblem

Progress = Callable[[int, float], None]
"""(assignments priced, best step so far)"""
WORST_OVER = 10.0
"""what an assignment over memory costs beside its time, per share of the limit it is over"""


class Meter:
    """All pricing of a method goes through here, so that its count of evaluations is true."""

    def __init__(self, problem: StageProblem, budget: int, progress: Progress | None) -> None:
        self.problem, self.budget, self.progress = problem, budget, progress
        self.evaluations = 0
        self.best = np.inf
        self.layers: Ints | None = None
        self.options: Ints | None = None
        self.trace: list[tuple[int, float]] = []
        self.bound: float | None = None
        """no assignment can be faster than this"""
        self.proven = False

    @property
    def left(self) -> int:
        return self.budget - self.evaluations

    def price(self, layers: Ints, options: Ints) -> Floats:
        """What each assignment costs: its step time, raised where it does not fit. Never more than `left`."""
        if len(layers) > self.left:
            raise RuntimeError(f"{len(layers)} assignments to price, {self.left} left in the budget")
        steps, over = self.problem.price(layers, options)
        fits = np.where(over > 0, np.inf, steps)
        first = int(np.argmin(fits))
        if fits[first] < self.best:
            self.best, self.layers, self.options = float(fits[first]), layers[first].copy(), options[first].copy()
            self.trace.append((self.evaluations + first + 1, self.best))
        self.evaluations += len(layers)
        self.tell()
        return np.where(over > 0, steps * (2.0 + WORST_OVER * over), steps)

    def tell(self) -> None:
        if self.progress is not None:
            self.progress(self.evaluations, self.best)
