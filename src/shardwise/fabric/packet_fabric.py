"""Messages of a collective as packets on the links of a fabric, beside what max-min rates say of the very same bytes.

Only what leaves its node is followed: inside a node there are no packets of this kind. Where a collective has more
packets than are simulated, a part of each message is (the same part of all), and where it has more messages, some of
its groups or the first ranks of one; rates are asked about the same part.
"""

from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as changed
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.duration import duration_of
from shardwise.fabric.ends import ends_of
from shardwise.fabric.graph import Graph
from shardwise.fabric.links import RoutedFabric, busy_seconds
from shardwise.fabric.packets import Outcome, PacketNetwork, PacketTransfers, Rules, simulated
from shardwise.fabric.packets.ask import ways_of
from shardwise.fabric.phases import Messages
from shardwise.fabric.price import Prices
from shardwise.fabric.solver import Flows
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of

MOST_WAYS = 16
"""that the packets of one message take in turn"""
FEWEST = 48
"""packets of a message that are followed at least, where it has as many"""
OVERTAKE = 4
"""packets of each way that may come before one that was sent earlier on another"""
LEAST_DELAY_S = 1e-9


@dataclass(frozen=True)
class Traffic:
    """What is sent, and its ways."""

    fabric: Tree | Graph
    """with every switch of its own"""
    source: Ints
    target: Ints
    bytes: Floats
    """of each message, as much of it as is followed"""
    share: float
    """of each message's bytes that is"""
    whole: int
    """messages there are in all"""
    hops: int
    """network links of the longest way"""
    ways: int
    """that the packets of one message take"""


@dataclass(frozen=True)
class PacketRun:
    outcome: Outcome
    transfers: PacketTransfers
    flow_s: float
    """the same bytes with their headers at max-min rates, and the delay of the longest way"""

    @property
    def times(self) -> float:
        """as long as at max-min rates"""
        return self.outcome.seconds / self.flow_s


def packet_fabric(fabric: RoutedFabric, seed: int) -> Tree | Graph:
    """The same with every switch of its own: sprayed packets take the ways of a message in turn, one by one."""
    assert isinstance(fabric, Tree | Graph)
    wiring = changed(fabric.wiring, seed=fabric.wiring.seed + seed)
    if wiring.routing == "ecmp":
        return replace(fabric, wiring=wiring)
    turns = changed(wiring, routing="ecmp", hashes="turn", connections=MOST_WAYS)
    if isinstance(fabric, Graph):
        return replace(fabric, wiring=turns)
    usual = tree_of(fabric.cluster, fabric.wiring)
    if fabric.down or not np.array_equal(usual.links.capacity, fabric.links.capacity):
        raise ValueError("packets: of links that are slow or down packets are simulated with --routing ecmp; add it")
    ways = 1
    for tier in fabric.tiers[1:]:
        ways *= tier.ways
    return tree_of(fabric.cluster, changed(turns, connections=min(ways, MOST_WAYS)))


def traffic_of(
    prices: Prices, call: PlacedMessage, algorithm: str, rules: Rules, budget: int, seed: int = 0
) -> Traffic | None:
    """The longest phase of a call over the network, cut down to about `budget` packets x links; None where nothing that
    leaves a node is a message from card to card (switches that add)."""
    phases = prices.messages(call, algorithm)[1].each
    links = len(prices.fabric.links)
    outside = [
        (each, float(busy_seconds(each.flows(prices.fabric).link_bytes(links), prices.fabric.links.capacity).max()))
        for each, _ in phases
        if _crosses(each, prices.fabric).any()
    ]
    if not outside:
        return None
    messages = max(outside, key=lambda item: item[1])[0]
    fabric = packet_fabric(prices.fabric, seed)
    keep = _crosses(messages, fabric)
    source, target = messages.source[keep], messages.target[keep]
    size = messages.bytes[keep] * call.bytes * call.skew
    chosen = _chosen(prices.members(call), source, target, budget // (FEWEST * _hops(fabric, source, target)))
    source, target, size = source[chosen], target[chosen], size[chosen]
    hops = _hops(fabric, source, target)
    packets = float(np.ceil(size / rules.payload).sum()) * hops
    share = min(budget / packets, 1.0)
    least = min(FEWEST * rules.payload / float(size.max()), 1.0)
    share = max(share, least)
    return Traffic(fabric, source, target, size * share, share, int(keep.sum()), hops, _ways(prices.fabric, fabric))


def _ways(asked: RoutedFabric, fabric: Tree | Graph) -> int:
    sprayed = isinstance(asked, Tree | Graph) and asked.wiring.routing == "spray"
    return fabric.wiring.connections if sprayed else 1


def _crosses(messages: Messages, fabric: RoutedFabric) -> NDArray[np.bool_]:
    return np.asarray((fabric.node[messages.source] != fabric.node[messages.target]) & (messages.bytes > 0))


def _hops(fabric: Tree | Graph, source: Ints, target: Ints) -> int:
    """Network links of a way, at most, by the first messages."""
    links = fabric.routes(source[:64], target[:64]).links
    level = np.append(fabric.links.level, 0)
    return max(int((level[links] > 0).sum(axis=1).max(initial=1)), 1)


def _chosen(members: Ints, source: Ints, target: Ints, most: int) -> NDArray[np.bool_]:
    """Messages of as many groups as there is room for; of one that is too large, of its first ranks."""
    size = int(max(members.max(), source.max(), target.max())) + 1
    group, rank = (np.full(size, -1, dtype=np.int64) for _ in range(2))
    group[members] = np.arange(len(members))[:, None]
    rank[members] = np.arange(members.shape[1])[None, :]
    # a message may leave over another card of its node: that counts for its receiver's group
    of, first = group[target], np.maximum(rank[source], rank[target])
    order = np.lexsort([first, of])
    keep = np.zeros(len(source), dtype=np.bool_)
    keep[order[: max(most, 1)]] = True
    if most >= len(source):
        return keep
    # whole groups, or whole ranks of one
    last = order[most - 1] if most > 0 else order[0]
    inside = of < of[last] if (of < of[last]).any() else (of == of[order[0]]) & (first < max(first[last], 2))
    return inside if inside.any() else keep


def network_of(fabric: Tree | Graph) -> PacketNetwork:
    source, target = ends_of(fabric)
    links = fabric.links
    card = float(np.median(links.capacity[(links.level > 0) & ((source < 0) | (target < 0))]))
    return PacketNetwork(links.capacity, np.maximum(links.latency_s, LEAST_DELAY_S), source, target, card)


def transfers_of(traffic: Traffic) -> PacketTransfers:
    """A flow for every connection, or one with all ways for every message whose packets are sprayed."""
    fabric = traffic.fabric
    routes = fabric.routes(traffic.source, traffic.target)
    free = len(fabric.links)
    level = np.append(fabric.links.level, 0)
    links, begin = ways_of(np.where(level[routes.links] > 0, routes.links, free), free)
    if traffic.ways > 1:
        count = traffic.ways
        first = np.arange(len(traffic.bytes)) * count
        return PacketTransfers(traffic.bytes, first, np.full(len(first), count), links, begin)
    rows = np.arange(len(routes.links))
    return PacketTransfers(
        traffic.bytes[routes.message] * routes.share, rows, np.ones(len(rows), dtype=np.int64), links, begin
    )


def flow_seconds(network: PacketNetwork, transfers: PacketTransfers, rules: Rules) -> float:
    """At max-min rates, headers with it, until the last byte is there."""
    wire = (rules.payload + rules.header) / rules.payload
    lengths = np.diff(transfers.way_from)
    width, free = int(lengths.max() * transfers.ways.max()), len(network.rate)
    table = np.full((len(transfers.bytes), width), free, dtype=np.int64)
    weight = np.zeros(table.shape)
    # all ways of a flow begin at `first_way`, one behind the other
    begin, end = transfers.way_from[transfers.first_way], transfers.way_from[transfers.first_way + transfers.ways]
    row = np.repeat(np.arange(len(begin)), end - begin)
    column = np.arange(len(row)) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin)
    place = np.repeat(begin, end - begin) + column
    table[row, column] = transfers.links[place]
    weight[row, column] = 1.0 / transfers.ways[row]
    flows = Flows(table, transfers.bytes * wire, weight if transfers.ways.max() > 1 else None)
    rate = network.rate.astype(np.float64)
    packet = rules.payload + rules.header
    ahead = np.append(0.0, np.cumsum(network.delay_s[transfers.links] + packet / rate[transfers.links]))
    first = transfers.first_way
    way_s = ahead[transfers.way_from[first + 1]] - ahead[transfers.way_from[first]]
    return duration_of(flows.folded(), rate).seconds + float(way_s.max())


def reorder_of(rules: Rules, traffic: Traffic) -> int:
    """Packets on several ways overtake one another: of a sprayed message that many may, before one counts as lost."""
    return rules.reorder if traffic.ways == 1 else max(rules.reorder, OVERTAKE * traffic.ways)


def packet_run(traffic: Traffic, rules: Rules, seed: int = 0) -> PacketRun:
    network, transfers = network_of(traffic.fabric), transfers_of(traffic)
    rules = changed(rules, reorder=reorder_of(rules, traffic))
    return PacketRun(simulated(network, transfers, rules, seed), transfers, flow_seconds(network, transfers, rules))
