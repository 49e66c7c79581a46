"""Which collectives are measured: those the plan sends most, over the groups it sends them in."""

from dataclasses import dataclass

import numpy as np

from shardwise.fabric.place import Seats
from shardwise.fabric.price import members_of
from shardwise.run.preflight.planned import PlannedJob, PlannedTraining

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
MOST_ORDERS = 8
WHOLE = {"cuda": 2**28, "cpu": 2**20}
"""bytes where no plan says any"""
LEAST = 2**12


@dataclass(frozen=True)
class CollectiveOrder:
    axis: str
    op: str
    bytes: int
    groups: tuple[tuple[int, ...], ...]
    """of ranks, all at once"""


def orders_for(plan: PlannedJob | None, world: int, device: str) -> list[CollectiveOrder]:
    """Of the plan where it has as many ranks as were started; else over all ranks together."""
    training = plan.training if plan is not None else None
    found = _planned(training, device) if training is not None and training.policy.gpus == world else []
    everyone = (tuple(range(world)),)
    return found or [CollectiveOrder("all", op, WHOLE[device], everyone) for op in OPS[:3]]


def _planned(training: PlannedTraining, device: str) -> list[CollectiveOrder]:
    """Of each axis and operation the message that moves most bytes in a step, the largest first."""
    policy, ranks = training.policy, np.arange(training.policy.gpus)
    seats = Seats(policy, tuple(policy.order.split("-")), ranks, "rank", ranks)
    best: dict[tuple[str, str, int], tuple[float, CollectiveOrder]] = {}
    for call in training.calls:
        if call.op not in OPS:
            continue
        key, weight = (call.axis, call.op, call.ranks), call.bytes * call.count
        if key not in best or best[key][0] < weight:
            size = int(min(max(call.bytes, LEAST), WHOLE[device]))
            groups = tuple(tuple(group) for group in members_of(seats, call).tolist())
            best[key] = weight, CollectiveOrder(call.axis, call.op, size, groups)
    chosen = sorted(best.values(), key=lambda each: -each[0])[:MOST_ORDERS]
    return [order for _, order in chosen]
