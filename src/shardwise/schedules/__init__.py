"""Pipeline schedules, one file each: what the closed form needs, and the order a simulator or a runtime follows."""

from functools import cache

import numpy as np

from shardwise.registry import plugins
from shardwise.schedules._contract import Schedule
from shardwise.spec.policy import SCHEDULES, Ints


def used(codes: Ints) -> list[tuple[int, Schedule]]:
    """The schedules that occur in a column of policies, with their codes: most batches have one or two."""
    return [(int(code), schedules()[SCHEDULES[code]]) for code in np.flatnonzero(np.bincount(codes))]


@cache
def schedules() -> dict[str, Schedule]:
    found = plugins("shardwise.schedules", "SCHEDULE").values()
    return {s.name: s for s in found if isinstance(s, Schedule)}
