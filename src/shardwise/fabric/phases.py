"""Collectives as messages between GPUs: who sends how much to whom at the same time.

Who sends what to whom is the algorithm's own `flows` (`collectives/`), laid on the GPUs of every group. Rounds that a
library pipelines chunk by chunk run side by side, so they are one phase with all their bytes; of the others each waits
for the one before. Bytes are fractions of the operation's buffer, as in `collectives`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.links import RoutedFabric
from shardwise.fabric.solver import Flows, joined
from shardwise.plugins.collectives import FABRIC_SWITCH, NODE_SWITCH, Collective, Round, collective
from shardwise.spec.cluster import Cluster

MOST_MESSAGES = 4_000_000


def nobody() -> Ints:
    return np.zeros(0, dtype=np.int64)


def nothing() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class Messages:
    """Sent side by side: GPU to GPU, between GPUs and the switch of their node, and through switches that add above."""

    source: Ints
    target: Ints
    bytes: Floats
    into: Ints = field(default_factory=nobody)
    """GPUs that send to the switch of their node"""
    into_bytes: Floats = field(default_factory=nothing)
    out_of: Ints = field(default_factory=nobody)
    """GPUs that the switch of their node sends to"""
    out_of_bytes: Floats = field(default_factory=nothing)
    added: tuple[tuple[Ints, float], ...] = ()
    """(sums x GPUs, bytes): each row's parts meet in the fabric's switches, and the sum comes back to all of it"""

    def flows(self, fabric: RoutedFabric) -> Flows:
        routes = fabric.routes(self.source, self.target)
        parts = [Flows(routes.links, self.bytes[routes.message] * routes.share, routes.weight)]
        for gpus, size, way in ((self.into, self.into_bytes, 0), (self.out_of, self.out_of_bytes, 1)):
            if len(gpus):
                links = fabric.reducing(gpus)[way]
                there = links >= 0
                parts.append(Flows(links[there, None], size[there]))
        for gpus, size_each in self.added:
            links = fabric.adding(gpus)
            parts.append(Flows(links[:, None], np.full(len(links), size_each)))
        return joined(parts, len(fabric.links)).folded()

    def pairs(self) -> tuple[Ints, Ints, Floats]:
        """(sender, receiver, bytes) with what switches add told as if each GPU sent to the next of its sum, and what
        goes to the node's own switch as if to itself: every GPU sends and receives as much as it really does."""
        source, target, size = [self.source, self.into], [self.target, self.into], [self.bytes, self.into_bytes]
        for gpus, each in self.added:
            source.append(gpus.ravel())
            target.append(np.roll(gpus, -1, axis=1).ravel())
            size.append(np.full(gpus.size, each))
        return np.concatenate(source), np.concatenate(target), np.concatenate(size)

    def into_levels(self, cluster: Cluster, rail: Ints) -> Floats:
        """Bytes that go into each level of the cluster, the way between rails with them; not those that switches above
        the nodes add up. `rail`: of each GPU's card."""
        found = np.zeros(len(cluster.levels))
        for level, block in enumerate(cluster.blocks[:-1], start=1):
            away = self.source // block != self.target // block
            found[level] = self.bytes[away].sum()
        node = cluster.node_size
        away = self.source // node != self.target // node
        turned = away & (rail[self.source] != rail[self.target])
        inside = ~away & (self.source != self.target)
        found[0] = self.bytes[inside].sum() + self.into_bytes.sum()
        if cluster.forwards:
            found[0] += self.bytes[turned].sum()
        elif len(found) > 2:
            near = self.source // cluster.blocks[1] == self.target // cluster.blocks[1]
            found[2] += self.bytes[turned & near].sum()
        return found

    def of_stage(self, stage: Ints, which: int) -> "Messages":
        """Those that GPUs of one pipeline stage send; `stage`: of each GPU."""
        mine, into, out = (stage[gpus] == which for gpus in (self.source, self.into, self.out_of))
        added = tuple((gpus[stage[gpus[:, 0]] == which], each) for gpus, each in self.added)
        return Messages(self.source[mine], self.target[mine], self.bytes[mine], self.into[into], self.into_bytes[into],
                        self.out_of[out], self.out_of_bytes[out], added)  # fmt: skip

    def merged(self) -> "Messages":
        """What goes to and from a node's switch is one message each way."""
        into, out = _summed(self.into, self.into_bytes), _summed(self.out_of, self.out_of_bytes)
        return Messages(self.source, self.target, self.bytes, *into, *out, self.added)

    def times(self, factor: float) -> "Messages":
        added = tuple((gpus, each * factor) for gpus, each in self.added)
        return replace(self, bytes=self.bytes * factor, into_bytes=self.into_bytes * factor,
                       out_of_bytes=self.out_of_bytes * factor, added=added)  # fmt: skip


@dataclass(frozen=True)
class Phases:
    """What runs side by side, one after another, each so often."""

    each: tuple[tuple[Messages, int], ...]

    @property
    def all(self) -> Messages:
        """The whole operation's messages."""
        return together([messages.times(float(often)) for messages, often in self.each])


def phases_of(algorithm: str, op: str, members: Ints, fabric: RoutedFabric, cards: int) -> Phases:
    """`members`: groups x ranks, as GPUs in ring order. `cards`: how many of a node's cards one group spreads over."""
    found = collective(algorithm)
    size = members.shape[1]
    if op == "all_to_all" and members.size * size > MOST_MESSAGES:
        raise ValueError(
            f"all-to-all over {size:,} ranks is more than {MOST_MESSAGES:,} messages; write a smaller group"
        )
    local = local_of(members, fabric.node)
    phases = []
    if found.uneven:
        for held, alike in _alike(members, fabric.node):
            seats = _Seats(alike, size, size)
            phases += [(seats.messages(each), each.times) for each in found.uneven(op, held, cards)]
    else:
        seats = _Seats(members, local, cards if found.pooled else local)
        phases = [(seats.messages(each), each.times) for each in found.flows(op, size, local)]
    if found.pipelined and phases:
        phases = [(together([messages.times(float(often)) for messages, often in phases]).merged(), 1)]
    return Phases(tuple(phases))


def messages_of(algorithm: str, op: str, members: Ints, fabric: RoutedFabric, cards: int) -> Messages:
    """All messages of the operation, whatever waits for what."""
    return phases_of(algorithm, op, members, fabric, cards).all


def runs_on(found: Collective, local: int, nodes: int) -> bool:
    """Can the algorithm serve a group that lies like this."""
    return not (found.spans_nodes and nodes == 1) and not (found.reduces_at in ("node", "all") and local == 1)


def local_of(members: Ints, node: Ints) -> int:
    """Ranks of a node, where every group has runs of equal length inside its nodes; else the longest runs that all of
    theirs are made of, each counted as a node of its own."""
    cuts = np.flatnonzero((np.diff(node[members], axis=1) != 0).any(axis=0)) + 1
    return gcd(members.shape[1], *cuts.tolist())


def _alike(members: Ints, node: Ints) -> list[tuple[tuple[int, ...], Ints]]:
    """(ranks in each node that a group passes, groups that lie so)."""
    ends = np.column_stack([np.diff(node[members], axis=1) != 0, np.ones(len(members), dtype=np.bool_)])
    patterns, which = np.unique(ends, axis=0, return_inverse=True)
    lengths = [tuple(np.diff(np.flatnonzero(each), prepend=-1).tolist()) for each in patterns]
    return [(held, members[which.ravel() == number]) for number, held in enumerate(lengths)]


@dataclass(frozen=True)
class _Seats:
    """Places of a group as GPUs, for all groups at once."""

    members: Ints
    local: int
    cards: int

    def messages(self, each: Round) -> Messages:
        source, target, size = each.source, each.target, each.fraction
        between = (source >= 0) & (target >= 0)
        into, out = target == NODE_SWITCH, source == NODE_SWITCH
        a, b, part = self._carded(source[between], target[between], size[between])
        return Messages(
            self._gpus(a), self._gpus(b), self._sizes(part), self._gpus(source[into]), self._sizes(size[into]),
            self._gpus(target[out]), self._sizes(size[out]), self._added(source[target == FABRIC_SWITCH], size),
        )  # fmt: skip

    def _gpus(self, places: Ints) -> Ints:
        return self.members[:, places].ravel()

    def _sizes(self, size: Floats) -> Floats:
        return np.tile(size, len(self.members))

    def _carded(self, source: Ints, target: Ints, size: Floats) -> tuple[Ints, Ints, Floats]:
        """Between nodes a group's channels leave over at most so many of a node's cards, each with its share."""
        if self.cards >= self.local:
            return source, target, size
        away = source // self.local != target // self.local
        nodes = int(max(source.max(initial=0), target.max(initial=0))) // self.local + 1
        pair, total = _summed(source[away] // self.local * nodes + target[away] // self.local, size[away])
        card = np.arange(self.cards) * self.local // self.cards
        ends = [((node * self.local)[:, None] + card).ravel() for node in (pair // nodes, pair % nodes)]
        return (np.concatenate([source[~away], ends[0]]), np.concatenate([target[~away], ends[1]]),
                np.concatenate([size[~away], np.repeat(total / self.cards, self.cards)]))  # fmt: skip

    def _added(self, givers: Ints, size: Floats) -> tuple[tuple[Ints, float], ...]:
        """Equal local ranks of all nodes hand up parts of one sum; the way back is the same sum's."""
        if not len(givers):
            return ()
        rails = self.members.reshape(len(self.members), -1, self.local)
        sums = np.swapaxes(rails, 1, 2).reshape(-1, rails.shape[1])
        if self.cards < self.local:
            places = np.arange(self.local) * self.cards // self.local * self.local // self.cards
            sums = np.swapaxes(rails[:, :, places], 1, 2).reshape(-1, rails.shape[1])
        return ((sums, float(size[0])),)


def _summed(keys: Ints, values: Floats) -> tuple[Ints, Floats]:
    found, place = np.unique(keys, return_inverse=True)
    return found, np.bincount(place, weights=values, minlength=len(found)).astype(np.float64)


def together(parts: Iterable[Messages]) -> Messages:
    found = list(parts)
    if not found:
        return Messages(nobody(), nobody(), nothing())
    columns = ("source", "target", "bytes", "into", "into_bytes", "out_of", "out_of_bytes")
    joined_up = {name: np.concatenate([getattr(part, name) for part in found]) for name in columns}
    return Messages(**joined_up, added=tuple(each for part in found for each in part.added))


def passed_on(source: Ints, target: Ints) -> Messages:
    """Each GPU hands one buffer to another: activations and gradients between pipeline stages."""
    return Messages(source.ravel(), target.ravel(), np.ones(source.size))
