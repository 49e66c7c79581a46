"""Pipeline schedules, one file each: what the closed form needs, and the order a simulator or a runtime follows."""

from functools import cache

from shardwise.registry import plugins
from shardwise.schedules._contract import Schedule


@cache
def schedules() -> dict[str, Schedule]:
    found = plugins("shardwise.schedules", "SCHEDULE").values()
    return {s.name: s for s in found if isinstance(s, Schedule)}
