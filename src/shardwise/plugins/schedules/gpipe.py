"""GPipe: all forwards, then all backwards. Same idle time as 1F1B, but every micro-batch is in flight."""

from shardwise.plugins.schedules._contract import Orders, Schedule, looped
from shardwise.plugins.schedules._orders import pieces


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    return [[*pieces("F", micro_batches), *pieces("B", micro_batches)] for _ in range(pp)]


SCHEDULE = Schedule(
    name="gpipe",
    piles_up=True,
    summary="all forwards, then all backwards; holds every micro-batch",
    in_flight=lambda stage, _pp, _vpp, micro_batches: micro_batches + 0 * stage,
    idle=lambda pp, _vpp, _micro_batches: pp - 1.0,
    order=_order,
    stage=looped,
)
