"""No pipeline: one stage does the forward and the backward of one micro-batch after another."""

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Orders, Schedule, looped
from shardwise.plugins.schedules._orders import alternate, pieces


def _order(_pp: int, _vpp: int, micro_batches: int) -> Orders:
    return [alternate(pieces("F", micro_batches), pieces("B", micro_batches), 0)]


SCHEDULE = Schedule(
    name="none",
    needs=Needs(stages="single"),
    summary="one stage: forward and backward of one micro-batch after another",
    in_flight=lambda stage, _pp, _vpp, _micro_batches: 1.0 + 0 * stage,
    idle=lambda pp, _vpp, _micro_batches: 0.0 * pp,
    order=_order,
    stage=looped,
)
