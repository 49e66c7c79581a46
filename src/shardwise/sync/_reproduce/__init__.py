"""Published results as commands: one file each, found by the registry under the name of the file.

Each says what it checks, so that a reproduction that no longer holds ends with exit code 1.
"""

from functools import cache

from shardwise.registry import named, plugins_of
from shardwise.sync._reproduce._contract import Check, Reproduction, Result, ResultSeries

__all__ = ["Check", "Reproduction", "Result", "ResultSeries", "reproduction", "reproductions"]


@cache
def reproductions() -> dict[str, Reproduction]:
    return plugins_of("shardwise.sync._reproduce", "REPRODUCTION", Reproduction)


def reproduction(name: str) -> Reproduction:
    return named("reproduce", name, reproductions())
