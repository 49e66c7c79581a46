"""Ways to look for the best stages of a pipeline, one file each, on a space far past enumeration.

What they all look for: which layers each stage holds, how many of them recompute, which GPUs it runs on and how
tensor-parallel it is. See `docs/search.md`.
"""

from functools import cache

from shardwise.registry import closest, plugins
from shardwise.search.methods._build import Group, stage_problem
from shardwise.search.methods._compare import Comparison, compare
from shardwise.search.methods._contract import Method, Solution
from shardwise.search.methods._problem import Assignment, Option, StageProblem

__all__ = ["Assignment", "Comparison", "Group", "Method", "Option", "Solution", "StageProblem", "compare", "method_of",
           "methods", "stage_problem"]  # fmt: skip


@cache
def methods() -> dict[str, Method]:
    """Every method by its name, exact ones first."""
    found = [m for m in plugins("shardwise.search.methods", "METHOD").values() if isinstance(m, Method)]
    return {m.name: m for m in sorted(found, key=lambda m: (not m.exact, m.name))}


def method_of(name: str) -> Method:
    if name not in methods():
        raise ValueError(f"method: {name!r} is unknown; {closest(name, list(methods()))}")
    return methods()[name]
