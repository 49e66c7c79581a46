"""Packets of an emulated fabric, simulated: its links, token buckets and queues, senders that do as the kernel's TCP.

What is stated and not measured: a packet takes `HOP_S` from port to port of this machine; a connection starts with ten
packets, grows and shrinks by cubic's rules, sends again by RACK and waits 200 ms at least for a time-out. Marks are set
by a phantom queue, which knows nothing of what a full bucket lets through at once.
"""

from collections.abc import Sequence

import numpy as np

from shardwise.fabric.ends import ends_of
from shardwise.fabric.packets import Outcome, PacketNetwork, PacketTransfers, Rules, simulated
from shardwise.fabric.packets.ask import ways_of
from shardwise_lab.emulated import Emulated
from shardwise_lab.knobs import HEADERS, PAYLOAD, Knobs
from shardwise_lab.traffic import Transfer

HOP_S = 50e-6
TIMEOUT_S = 0.2
"""the kernel's shortest"""
MOST_WINDOW = 4 << 20
"""bytes a connection may have under way where no window is set: what the kernel's send buffers grow to"""


def network_of(fabric: Emulated) -> PacketNetwork:
    links = fabric.tree.links
    source, target = ends_of(fabric.tree)
    delay = np.full(len(links), HOP_S)
    return PacketNetwork(links.capacity, delay, source, target, float(links.capacity.min()), fabric.knobs.burst_bytes)


def rules_of(knobs: Knobs) -> Rules:
    mark = 0 if knobs.ecn_bytes is None else max(knobs.ecn_bytes - knobs.burst_bytes, 1)
    return Rules(
        payload=PAYLOAD, header=HEADERS, layer="drop", buffer_bytes=knobs.buffer_bytes, threshold=0.0, control="cubic",
        mark_low_bytes=mark, mark_high_bytes=mark, window_bytes=knobs.window_bytes or MOST_WINDOW, timeout_s=TIMEOUT_S,
        ack_every=2,
    )  # fmt: skip


def transfers_of(fabric: Emulated, transfers: Sequence[Transfer]) -> tuple[PacketTransfers, list[int]]:
    """(one flow for each connection, which transfer it belongs to); a hash of the fabric's seed picks their ways."""
    tree, free = fabric.tree, len(fabric.tree.links)
    rows, size, of = [], [], []
    for number, each in enumerate(transfers):
        routes = tree.routes(np.array([each.source]), np.array([each.target]))
        ways = (
            routes.links if len(routes.links) == each.connections else np.repeat(routes.links, each.connections, axis=0)
        )
        rows.append(ways)
        size += [each.bytes / each.connections] * each.connections
        of += [number] * each.connections
    links, begin = ways_of(np.concatenate(rows), free)
    count = len(size)
    return PacketTransfers(np.array(size), np.arange(count), np.ones(count, dtype=np.int64), links, begin), of


def played(fabric: Emulated, transfers: Sequence[Transfer], seed: int = 0) -> tuple[list[float], Outcome]:
    """(seconds until each transfer was received whole, what the ports saw)."""
    flows, of = transfers_of(fabric, transfers)
    found = simulated(network_of(fabric), flows, rules_of(fabric.knobs), seed)
    ends = [0.0] * len(transfers)
    for number, end in zip(of, found.done_s.tolist(), strict=True):
        ends[number] = max(ends[number], end)
    return ends, found
