"""What every method states about itself, and what it hands back."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from shardwise.search.methods._meter import Meter, Progress
from shardwise.search.methods._problem import Assignment, StageProblem

BUDGET = 20_000
"""assignments a method may price unless told otherwise"""


@dataclass(frozen=True)
class Solution:
    assignment: Assignment | None
    """the best that fits; nothing when none was found"""
    step_s: float
    """infinite when nothing was found"""
    evaluations: int
    """whole assignments priced; for integer programming the nodes of its tree are counted too"""
    seconds: float
    bound: float | None
    """no assignment is faster than this, where the method knows"""
    proven: bool
    """the assignment is the best there is, or there is none"""
    trace: tuple[tuple[int, float], ...]
    """(evaluations, step time) at each improvement"""

    @property
    def gap(self) -> float | None:
        """How far the step is above the method's own bound, as a share of the bound."""
        return None if self.bound is None or self.assignment is None else max(self.step_s / self.bound - 1.0, 0.0)


class Method(Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    exact: bool
    """given time, it ends with a proof"""
    look: Callable[[Meter, int], None]
    """(meter, seed): prices assignments through the meter until done or nothing is left of its budget; sets the
    meter's `bound` and `proven` where it can"""

    def solve(
        self,
        problem: StageProblem,
        *,
        budget_evaluations: int = BUDGET,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Solution:
        """Ctrl-C ends the search with the best so far."""
        if budget_evaluations < 1:
            raise ValueError(f"budget: {budget_evaluations} is out of range; write a whole number of 1 or more")
        if seed < 0:
            raise ValueError(f"seed: {seed} is out of range; write a whole number of 0 or more")
        meter = Meter(problem, budget_evaluations, progress)
        start = time.perf_counter()
        try:
            self.look(meter, seed)
        except KeyboardInterrupt:
            meter.proven = False
        found = None
        if meter.layers is not None and meter.options is not None:
            found = problem.assignment(meter.layers, meter.options)
        return Solution(
            assignment=found, step_s=meter.best, evaluations=meter.evaluations, seconds=time.perf_counter() - start,
            bound=meter.best if meter.proven and found else meter.bound, proven=meter.proven, trace=tuple(meter.trace),
        )  # fmt: skip
