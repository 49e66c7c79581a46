"""Bytes an average GPU sends into each network level in one step, by the axis that sends them."""

import numpy as np

from shardwise.cost.profile import Profile
from shardwise.estimate.closed_form import network_for
from shardwise.fabric.calls import AXES, calls_of
from shardwise.spec.cluster import Cluster
from shardwise.work import Work


def traffic_of(work: Work, cluster: Cluster, profile: Profile | None = None) -> dict[str, dict[str, float]]:
    """axis -> level -> bytes, for the one policy `work` was made for (with every stage)."""
    levels = [level.name for level in cluster.levels]
    network = network_for(cluster, work.stack, profile)
    sent = {axis: np.zeros(len(levels)) for axis in AXES}
    stages = int(work.layout.policies.pp[0])
    for call in calls_of(work):
        each = network.traffic(call.op, call.bytes, call.size, call.stride)
        # a call is of the GPUs of one stage
        sent[call.axis] += call.times / stages * each
    return {axis: dict(zip(levels, map(float, each), strict=True)) for axis, each in sent.items()}
