"""Methods side by side on one problem: quality against evaluations and time."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.search.methods._contract import Method, Solution
from shardwise.search.methods._meter import Progress
from shardwise.search.methods._problem import StageProblem


@dataclass(frozen=True)
class Comparison:
    solutions: dict[str, Solution]
    optimum_s: float | None
    """the best step there is, where a method proved it"""
    bound_s: float | None
    """no assignment is faster: the optimum, or the best bound any method gave"""

    def gap(self, name: str) -> float | None:
        """How far a method's step is above the optimum, or the bound, as a share of it."""
        solution = self.solutions[name]
        if self.bound_s is None or solution.assignment is None:
            return None
        return max(solution.step_s / self.bound_s - 1.0, 0.0)


def compare(
    problem: StageProblem,
    methods: Sequence[Method],
    *,
    budget_evaluations: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    found = {
        method.name: method.solve(problem, budget_evaluations=budget_evaluations, seed=seed, progress=progress)
        for method in methods
    }
    proven = [s.step_s for s in found.values() if s.proven and s.assignment is not None]
    bounds = [s.bound for s in found.values() if s.bound is not None]
    optimum = min(proven) if proven else None
    return Comparison(found, optimum, optimum if optimum is not None else max(bounds, default=None))
