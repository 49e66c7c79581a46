"""Ways to look for the best point of a problem, one file each, on spaces far past enumeration. See `docs/search.md`."""

from functools import cache

from shardwise.registry import closest, plugins
from shardwise.search.methods._compare import Comparison, compare
from shardwise.search.methods._contract import BUDGET, Method, Solution

__all__ = ["BUDGET", "Comparison", "Method", "Solution", "compare", "method_of", "methods"]


@cache
def methods() -> dict[str, Method]:
    """Every method by its name, exact ones first."""
    found = [m for m in plugins("shardwise.search.methods", "METHOD").values() if isinstance(m, Method)]
    return {m.name: m for m in sorted(found, key=lambda m: (not m.exact, m.name))}


def method_of(name: str) -> Method:
    if name not in methods():
        raise ValueError(f"method: {name!r} is unknown; {closest(name, list(methods()))}")
    return methods()[name]
