"""What travels: one event per exchange, the same from a simulation, a run and a cost.

An event knows how many bytes each member of its group hands to the network. The builders are the only place that says
so; the executed algorithms are held to it by counting.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from shardwise.plugins.collectives._trees import double_tree
from shardwise.plugins.topologies import GossipTopology

FP32 = 4
SERVER = 0
"""the member that is the server where there is one"""
EVERYONE: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class SyncEvent:
    op: str
    """all_reduce, all_gather, all_to_all, broadcast, mix (with neighbours), push and pull (with a server)"""
    algorithm: str
    """how it is done: ring, tree, server, sharded, pairwise, or the name of the graph"""
    bytes: int
    """of the buffer as collectives count it; of mix, push and pull: of one message"""
    size: int
    """members of the group"""
    stride: int
    """distance between neighbours of the group among all workers"""
    sent: tuple[int, ...]
    """bytes each member sends"""
    peers: tuple[tuple[int, ...], ...]
    """to whom each member sends; empty: everyone to everyone"""

    def sent_by(self, worker: int) -> int:
        return self.sent[worker // self.stride % self.size]


def part_length(d: int, size: int) -> int:
    return ceil(d / size)


def part_bounds(d: int, size: int) -> list[tuple[int, int]]:
    """Equal parts, of which the last ones may be shorter or empty."""
    length = part_length(d, size)
    return [(min(p * length, d), min((p + 1) * length, d)) for p in range(size)]


def halves(d: int) -> tuple[tuple[int, int], tuple[int, int]]:
    middle = (d + 1) // 2
    return (0, middle), (middle, d)


def upwards(tree: dict[int, int]) -> list[tuple[int, int]]:
    """(child, parent) in the order a reduction uses them: the deepest first."""

    def depth(place: int) -> int:
        return 0 if place not in tree else 1 + depth(tree[place])

    return sorted(tree.items(), key=lambda edge: (-depth(edge[0]), edge[0]))


@lru_cache(maxsize=4096)
def mean_event(d: int, size: int, stride: int, via: str) -> SyncEvent:
    parts = [stop - start for start, stop in part_bounds(d, size)]
    peers: tuple[tuple[int, ...], ...]
    if via == "ring":
        # the reduce-scatter passes on every part but the own, the all-gather every part but the next one's
        sent = tuple(2 * d - parts[i] - parts[(i + 1) % size] if size > 1 else 0 for i in range(size))
        peers = tuple(((i + 1) % size,) if size > 1 else () for i in range(size))
    elif via == "sharded":
        sent = tuple(d - parts[i] + (size - 1) * parts[i] for i in range(size))
        peers = EVERYONE
    elif via == "server":
        sent = tuple((size - 1) * d if i == SERVER else d for i in range(size))
        peers = tuple(tuple(range(1, size)) if i == SERVER else (SERVER,) for i in range(size))
    else:
        sent, peers = _tree_traffic(d, size)
    return SyncEvent("all_reduce", via, FP32 * d, size, stride, tuple(FP32 * s for s in sent), peers)


def _tree_traffic(d: int, size: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Up and down two trees, half of the numbers each."""
    sent, to = [0] * size, [set[int]() for _ in range(size)]
    for (start, stop), tree in zip(halves(d), double_tree(size), strict=True):
        for child, parent in tree.items():
            for a, b in ((child, parent), (parent, child)):
                sent[a] += stop - start
                to[a].add(b)
    return tuple(sent), tuple(tuple(sorted(t)) for t in to)


@lru_cache(maxsize=4096)
def gather_event(message: int, size: int, stride: int) -> SyncEvent:
    """Every member's message reaches every other member."""
    sent = tuple((size - 1) * message for _ in range(size))
    return SyncEvent("all_gather", "ring", size * message, size, stride, sent, EVERYONE)


@lru_cache(maxsize=4096)
def collect_event(d: int, size: int, stride: int) -> SyncEvent:
    """All-gather of the parts of d numbers: the last parts are shorter."""
    sent = tuple(FP32 * (size - 1) * (stop - start) for start, stop in part_bounds(d, size))
    return SyncEvent("all_gather", "ring", FP32 * d, size, stride, sent, EVERYONE)


@lru_cache(maxsize=4096)
def spread_event(d: int, size: int, stride: int) -> SyncEvent:
    """All-to-all of the parts of d numbers."""
    parts = [stop - start for start, stop in part_bounds(d, size)]
    sent = tuple(FP32 * (d - parts[i]) for i in range(size))
    return SyncEvent("all_to_all", "pairwise", FP32 * d, size, stride, sent, EVERYONE)


@lru_cache(maxsize=4096)
def exchange_event(message: int, size: int, stride: int) -> SyncEvent:
    """All-to-all of encoded parts, all of the same length."""
    sent = tuple((size - 1) * message for _ in range(size))
    return SyncEvent("all_to_all", "pairwise", size * message, size, stride, sent, EVERYONE)


@lru_cache(maxsize=4096)
def broadcast_event(d: int, size: int, stride: int) -> SyncEvent:
    """Along a chain, as rings do it."""
    sent = tuple(FP32 * d if i < size - 1 else 0 for i in range(size))
    peers = tuple((i + 1,) if i < size - 1 else () for i in range(size))
    return SyncEvent("broadcast", "ring", FP32 * d, size, stride, sent, peers)


@lru_cache(maxsize=4096)
def mix_event(d: int, size: int, stride: int, topology: GossipTopology, step: int) -> SyncEvent:
    """`step` already reduced to the period, so that equal events are one object."""
    targets = topology.rounds(size)[step].targets
    sent = tuple(FP32 * d * len(to) for to in targets)
    return SyncEvent("mix", topology.name, FP32 * d, size, stride, sent, targets)


@lru_cache(maxsize=4096)
def server_event(op: str, d: int, size: int, stride: int, members: tuple[int, ...]) -> SyncEvent:
    """push: the members' numbers to the server; pull: the server's to the members. Its own stay where they are."""
    away = tuple(i for i in members if i != SERVER)
    peers: tuple[tuple[int, ...], ...]
    if op == "push":
        sent = tuple(FP32 * d if i in away else 0 for i in range(size))
        peers = tuple((SERVER,) if i in away else () for i in range(size))
    else:
        sent = tuple(FP32 * d * len(away) if i == SERVER else 0 for i in range(size))
        peers = tuple(away if i == SERVER else () for i in range(size))
    return SyncEvent(op, "server", FP32 * d, size, stride, sent, peers)
