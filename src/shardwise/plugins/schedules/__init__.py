"""Pipeline schedules, one file each: what the closed form needs, and the order a simulator or a runtime follows."""

from functools import cache

import numpy as np

from shardwise.arrays import Ints
from shardwise.plugins.pipeline import schedule_names
from shardwise.plugins.schedules._contract import Schedule
from shardwise.registry import plugins_of


def used(codes: Ints) -> list[tuple[int, Schedule]]:
    """The schedules that occur in a column of policies, with their codes: most batches have one or two."""
    return [(int(code), schedules()[schedule_names()[code]]) for code in np.flatnonzero(np.bincount(codes))]


@cache
def schedules() -> dict[str, Schedule]:
    return {each.name: each for each in plugins_of("shardwise.plugins.schedules", "SCHEDULE", Schedule).values()}


def held_pieces(name: str, pp: int, vpp: int) -> Ints:
    """ranks x chunks: which piece of the model that is."""
    schedule = schedules()[name]
    chunks = 2 if schedule.both_ends else vpp
    return np.array([[schedule.stage(r, c, pp, vpp) for c in range(chunks)] for r in range(pp)], dtype=np.int64)
