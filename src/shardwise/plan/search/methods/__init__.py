"""Ways to look for the best point of a problem, one file each, on spaces far past enumeration. See `docs/search.md`."""

from collections.abc import Sequence
from functools import cache

from shardwise.plan.search.methods._compare import Comparison, compare
from shardwise.plan.search.methods._contract import BUDGET, Method, Solution, points_text
from shardwise.plan.search.problems._contract import Problem
from shardwise.registry import named, plugins_of

__all__ = ["BUDGET", "Comparison", "Method", "Solution", "compare", "method_for", "method_of", "methods", "points_text",
           "unusable"]  # fmt: skip


@cache
def methods() -> dict[str, Method]:
    """Every method by its name, exact ones first."""
    found = plugins_of("shardwise.plan.search.methods", "METHOD", Method)
    return {m.name: m for m in sorted(found.values(), key=lambda m: (not m.exact, m.name))}


def method_of(name: str) -> Method:
    return named("method", name, methods())


def unusable(problem: Problem, budget: int = BUDGET) -> dict[str, str]:
    """The methods that cannot work on a problem, and why."""
    return {name: why for name, method in methods().items() if (why := method.why_not(problem, budget))}


def method_for(problem: Problem, name: str | None, preferred: Sequence[str], budget: int = BUDGET) -> Method:
    """The method of this name, or the first of the preferred ones that works."""
    if name is None:
        works = (method for each in preferred if not (method := method_of(each)).why_not(problem, budget))
        return next(works, methods()[preferred[-1]])
    method = method_of(name)
    if why := method.why_not(problem, budget):
        others = [each for each in methods() if each not in unusable(problem, budget)]
        raise ValueError(f"method: {name} does not work on this problem: {why}; write --method {' or '.join(others)}")
    return method
