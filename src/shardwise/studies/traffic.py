"""Bytes an average GPU sends into each network level in one step, by the axis that sends them."""

import numpy as np
from numpy.typing import NDArray

from shardwise.calibrate.profile import Profile
from shardwise.case import driven_network
from shardwise.cost.network import Network
from shardwise.cost.placement import Placement
from shardwise.estimate.synced import SyncChoice
from shardwise.estimate.synced.price import workers_of
from shardwise.estimate.synced.traffic import traffic_of as strategy_traffic
from shardwise.fabric.calls import AXES, Call, calls_of
from shardwise.spec.cluster import Cluster
from shardwise.work import Work

Floats = NDArray[np.float64]


def traffic_of(
    work: Work, cluster: Cluster, profile: Profile | None = None, sync: SyncChoice | None = None
) -> dict[str, dict[str, float]]:
    """axis -> level -> bytes, for the one policy `work` was made for (with every stage)."""
    levels = [level.name for level in cluster.levels]
    network = driven_network(cluster, work.stack, profile)
    sent = {axis: np.zeros(len(levels)) for axis in AXES}
    stages = int(work.layout.policies.pp[0])
    for call in calls_of(work):
        if sync is None or not _replaced(call):
            each = network.traffic(call.op, call.bytes, call.size, call.stride)
            # a call is of the GPUs of one stage
            sent[call.axis] += call.times / stages * each
    if sync is not None:
        sent["dp"] += _of_strategy(sync, work, network)
    return {axis: dict(zip(levels, map(float, each), strict=True)) for axis, each in sent.items()}


def _replaced(call: Call) -> bool:
    """What a strategy does instead: the all-reduce between replicas."""
    return call.axis == "dp" and call.op == "all_reduce"


def _of_strategy(sync: SyncChoice, work: Work, network: Network) -> Floats:
    """Of an average GPU: its strategy's messages, and first the sum over the context-parallel ranks of a worker."""
    total = np.zeros(len(network.cluster.levels))
    policies = work.layout.policies
    for grid, expert in zip(work.parameters, (False, True), strict=True):
        row, who = float(grid.mean()), workers_of(work.layout, expert=expert)
        if not row:
            continue
        if policies.zero[0] == 0 and policies.cp[0] > 1:
            grads = row * work.job.precision.grad_comm_bytes
            stride = int(Placement().strides(policies)["cp"][0])
            total += network.traffic("all_reduce", grads, int(policies.cp[0]), stride)
        row *= float(who.share[0])
        traffic = strategy_traffic(sync.strategy, int(who.count[0]), work.model, int(policies.tp[0]))
        for event, bytes_, times in traffic.exchanges:
            stride = event.stride * int(who.stride[0])
            plain = event.op in ("mix", "push", "pull") or event.algorithm == "server"
            ops = ["all_to_all", "all_gather"] if event.algorithm == "sharded" else ["send" if plain else event.op]
            often = sum(event.sent) / event.size / event.bytes if plain else 1.0
            total += sum(times * often * network.traffic(op, bytes_ * row, event.size, stride) for op in ops)
    return total
