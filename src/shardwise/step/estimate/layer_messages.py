"""Seconds of the messages of one layer in one micro-batch, by axis and phase, before any overlap."""

import numpy as np

from shardwise.spec.message import Message
from shardwise.step.estimate.dispatch import between_nodes, forwarded_share, once_share
from shardwise.step.estimate.machine import Machine
from shardwise.work.layout import Layout, Numbers
from shardwise.work.ops import Value

AXES = ("tp", "cp", "ring", "ep")
"""ring: what of cp is passed on block by block"""


def message_seconds(
    collectives: tuple[Message[Value], ...], layout: Layout, machine: Machine
) -> tuple[dict[str, Numbers], dict[str, Numbers], Numbers]:
    """Seconds by axis and phase, and how many collectives there are."""
    zero = np.zeros_like(layout.tp)
    phases = {"forward": dict.fromkeys(AXES, zero), "backward": dict.fromkeys(AXES, zero)}
    number = zero
    for item in collectives:
        if not np.any(item.count):
            continue
        into = phases["forward" if item.phase == "forward" else "backward"]
        axis = "ep" if item.axis == "etp" else item.axis
        seconds = machine.collective(item.op, item.axis, received_bytes(item, machine))
        if item.copies > 1.0 and machine.stack.experts.dispatch == "once":
            seconds = np.maximum(seconds, _forwarded(item, machine)) + machine.stack.experts.exchange_setup_s
        if machine.network.boundary_message_s and item.axis == "tp":
            seconds = seconds + machine.boundary_s(item.op)
        into[axis] = into[axis] + item.count * seconds
        if axis == "cp" and item.op == "send":
            into["ring"] = into["ring"] + item.count * seconds
        if item.axis != "cp":
            number = number + item.count
    return phases["forward"], phases["backward"], number


def _forwarded(item: Message[Value], machine: Machine) -> Numbers:
    """Seconds in which the ranks of a node pass on what reached it, while others still arrive."""
    cluster, size, stride = machine.network.cluster, machine.sizes[item.axis], machine.strides[item.axis]
    share = forwarded_share(cluster, size, stride, item, machine.stack.experts.routing)
    inside = np.minimum(size, np.maximum(cluster.node_size // stride, 1))
    return machine.network.seconds("all_to_all", item.bytes * machine.fullest_share() * share, inside, stride)


def received_bytes(item: Message[Value], machine: Machine) -> Value:
    """Of an exchange on the fullest rank, for which all wait, and without the copies that the program spares; as many
    as take its time where a network lets an all-to-all reach less than other messages."""
    stack = machine.stack
    fullest = machine.fullest_share() if item.op == "all_to_all" else 1.0
    received = item.bytes * fullest
    sizes, strides = machine.sizes[item.axis], machine.strides[item.axis]
    if item.copies <= 1.0 or stack.experts.dispatch == "copies":
        cluster = machine.network.cluster
        if item.op != "all_to_all" or cluster.exchanged == 1.0:
            return received
        return np.where(between_nodes(cluster, sizes, strides), received / cluster.exchanged, received)
    return received * once_share(machine.network.cluster, sizes, strides, item, stack.experts.routing)
