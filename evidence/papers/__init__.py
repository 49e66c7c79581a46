"""Published results as commands: one file each, found by the registry under the name of the file.

Each says what it checks, so that a reproduction that no longer holds ends with exit code 1.
"""

from functools import cache

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries
from shardwise.registry import named, plugins_of

__all__ = ["Check", "Reproduction", "Result", "ResultSeries", "reproduction", "reproductions"]


@cache
def reproductions() -> dict[str, Reproduction]:
    return plugins_of("evidence.papers", "REPRODUCTION", Reproduction)


def reproduction(name: str) -> Reproduction:
    return named("reproduce", name, reproductions())
