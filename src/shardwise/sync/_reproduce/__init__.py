"""Published results as commands: one file each, found by the registry under the name of the file.

Each says what it checks, so that a reproduction that no longer holds ends with exit code 1.
"""

from functools import cache

from shardwise.registry import closest, plugins
from shardwise.sync._reproduce._contract import Check, Reproduction, Result, ResultSeries

__all__ = ["Check", "Reproduction", "Result", "ResultSeries", "reproduction", "reproductions"]


@cache
def reproductions() -> dict[str, Reproduction]:
    found: dict[str, Reproduction] = {}
    for name, plugin in plugins("shardwise.sync._reproduce", "REPRODUCTION").items():
        if not isinstance(plugin, Reproduction):
            raise TypeError(f"sync/_reproduce/{name}.py: REPRODUCTION is a {type(plugin).__name__}")
        found[name] = plugin
    return found


def reproduction(name: str) -> Reproduction:
    known = reproductions()
    if name not in known:
        raise ValueError(f"reproduce: {name!r} is unknown; {closest(name, list(known))}")
    return known[name]
