"""Methods side by side on one problem: quality against evaluations and time."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.plan.search.methods._contract import Method, Solution
from shardwise.plan.search.methods._meter import Progress
from shardwise.plan.search.problems._contract import Problem


@dataclass(frozen=True)
class Comparison:
    solutions: dict[str, Solution]
    optimum_s: float | None
    """the best there is, where a method proved it"""
    bound_s: float | None
    """nothing is below: the optimum, or the best bound that a method or the problem gave"""

    def gap(self, name: str) -> float | None:
        """How far a method's objective is above the optimum, or the bound, as a share of it."""
        solution = self.solutions[name]
        if not self.bound_s or solution.point is None:
            return None
        return max(solution.objective_s / self.bound_s - 1.0, 0.0)


def compare(
    problem: Problem,
    methods: Sequence[Method],
    *,
    budget_evaluations: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Ctrl-C leaves the methods that are done, and what the one under way has found."""
    found: dict[str, Solution] = {}
    for method in methods:
        try:
            found[method.name] = method.solve(
                problem, budget_evaluations=budget_evaluations, seed=seed, progress=progress
            )
        except KeyboardInterrupt:
            if not found:
                raise
            break
        if not found[method.name].finished:
            break
    proven = [s.objective_s for s in found.values() if s.proven and s.point is not None]
    bounds = [s.bound_s for s in found.values() if s.bound_s is not None]
    optimum = min(proven) if proven else None
    known = max([*bounds, problem.bound_s])
    return Comparison(found, optimum, optimum if optimum is not None else known or None)
