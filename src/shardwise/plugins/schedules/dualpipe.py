"""DualPipe (DeepSeek-V3, arXiv:2412.19437): micro-batches enter at both ends of a pipeline that holds the model twice.

Rank r holds stage r for the half of the micro-batches that goes down and stage pp-1-r for the half that comes up; a
forward of one direction runs together with a whole backward of the other. Each half of the ranks is a DualPipeV of pp/2
ranks, folded where that one turns. Idle time (pp/2-1)(F&B + B - 3W), the report's table 2, with the pair F&B taken as
F + B and F = I = W: two thirds of a micro-batch for each of pp/2-1. Peak memory: pp+1 micro-batches on every rank,
parameters twice.
"""

import numpy as np

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Action, Orders, Schedule
from shardwise.plugins.schedules.dualpipe_v import corners, rank_order


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    """Both halves of the ranks do what DualPipeV does, the second half with the directions exchanged."""
    half = micro_batches // 2
    orders: Orders = []
    for rank in range(pp):
        second_half = int(rank >= pp // 2)
        for_one = rank_order(min(rank, pp - 1 - rank), pp // 2, half)
        orders.append([_directed(piece, piece.chunk ^ second_half, half) for piece in for_one])
    return orders


def _directed(piece: Action, up: int, half: int) -> Action:
    return piece._replace(micro_batch=piece.micro_batch + half * up, chunk=up)


SCHEDULE = Schedule(
    name="dualpipe",
    needs=Needs(stages="even", even=True, least=2),
    summary="micro-batches enter at both ends of a model held twice; forwards paired with backwards",
    in_flight=lambda stage, pp, _vpp, _micro_batches: pp + 1.0 + 0 * stage,
    idle=lambda pp, _vpp, _micro_batches: np.maximum(pp - 2.0, 0.0) / 3.0,
    order=_order,
    stage=lambda rank, chunk, pp, _vpp: pp - 1 - rank if chunk else rank,
    splits_backward=True,
    corners=lambda stage, pp, _vpp, _micro_batches: corners(np.minimum(stage, pp - 1 - stage), pp / 2, 1),
    both_ends=True,
)
