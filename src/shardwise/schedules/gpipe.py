"""GPipe: all forwards, then all backwards. Same idle time as 1F1B, but every micro-batch is in flight."""

from shardwise.schedules._contract import Schedule

SCHEDULE = Schedule(
    name="gpipe",
    in_flight=lambda stage, _pp, _vpp, micro_batches: micro_batches + 0 * stage,
    idle=lambda pp, _vpp, _micro_batches: pp - 1.0,
    summary="all forwards, then all backwards; holds every micro-batch",
)
