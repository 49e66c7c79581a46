"""A schedule for the tests: GPipe whose backwards run in the order of its forwards reversed, on an even pipeline."""

from msgspec.structs import replace

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Orders
from shardwise.plugins.schedules._orders import pieces
from shardwise.plugins.schedules.gpipe import SCHEDULE as GPIPE


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    return [[*pieces("F", micro_batches), *reversed(pieces("B", micro_batches))] for _ in range(pp)]


SCHEDULE = replace(
    GPIPE, name="sample_schedule", summary="a sample for the tests", needs=Needs(stages="even"), order=_order
)
