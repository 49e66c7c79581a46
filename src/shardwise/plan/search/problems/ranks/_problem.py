"""Rank placement: which nodes of the fabric a policy's nodes lie on.

The ranks of a policy fill nodes in their own order; a point says under which leaf switch (or whatever the lowest level
above the node is) each of those nodes lies. Groups of ranks send as their algorithm does, in the order of the group: a
ring to the next, a pipeline to the next stage, an all-to-all to everyone. That settles what leaves each block of every
level and how many messages wait for each other across it; `cost/network.py` turns both into seconds. Blocks carry the
load of all groups at once, so that two rings through one uplink share it. The objective is the network's seconds of a
step, before any overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Protocol
from shardwise.plan.search.problems._boxes import Boxes
from shardwise.plan.search.problems._contract import IntegerProgram, PointPrices, Signals, soft_max
from shardwise.plugins.collectives._exchange import exchange_steps

RUNS = (2, 4)
"""nodes that move together, beside one alone"""
SCALE = 2.0
"""shares differ by less than 1; a learner wants figures around 1"""


@dataclass(frozen=True)
class GroupTraffic:
    """One collective of a step, over all groups of its axis."""

    name: str
    pattern: str
    """ring: to the next, in turn; pass: to the next, all at once; pairs: to everyone"""
    groups: Ints
    """groups x nodes, in the order of the group; ranks of one node that do the same are one group"""
    edges: Ints
    """from and to: 2 x edges between nodes"""
    weight: float
    """of an edge: bytes over it, summed over its ranks, as a share of `bytes`"""
    bytes: float
    count: float
    """times a step"""
    node_members: float
    """ranks of one group on one node"""
    step_factor: float
    """messages one after another for each hop"""
    inside_steps: float
    """messages that stay on their node"""
    inside_volume: float
    """share of `bytes` that a GPU sends inside its node"""
    copy_s: float
    crowding: float
    """how much more than an even share of the node's cards carry"""
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True)
class RankProblem(Boxes):
    nodes: int
    """nodes of the policy; items beyond are spare nodes"""
    node_gpus: int
    room: tuple[int, ...]
    """free nodes of each box: under one leaf, with one speed"""
    blocks: Ints
    """levels above the leaf x boxes: which block of the level below a box lies in; its uplinks carry what leaves it"""
    speed: Floats
    """by box: speed of a node's cards, 1 as the cluster states it"""
    box_names: tuple[str, ...]
    traffic: tuple[GroupTraffic, ...]

    @cached_property
    def far(self) -> Ints:
        """Boxes x boxes: the level that joins two nodes that lie in them (1: the same leaf)."""
        apart = self.blocks[:, :, None] != self.blocks[:, None, :]
        return np.asarray(1 + apart.sum(axis=0))

    @cached_property
    def uplink_gpus(self) -> list[Floats]:
        """By level above the leaf: GPUs that may use the uplinks of each block."""
        held = np.array(self.room, dtype=np.float64) * self.node_gpus
        return [np.asarray(np.bincount(row, weights=held), dtype=np.float64) for row in self.blocks]

    def price(self, points: Ints) -> PointPrices:
        seconds, guide = np.zeros(len(points)), np.zeros(len(points))
        for item in self.traffic:
            true, soft = self.call_s(item, points)
            seconds += item.count * true
            guide += item.count * soft
        return PointPrices(seconds, np.zeros(len(points)), guide)

    def parts_s(self, point: Ints) -> dict[str, float]:
        """Seconds of a step by collective."""
        found: dict[str, float] = {}
        for item in self.traffic:
            found[item.name] = found.get(item.name, 0.0) + float(item.count * self.call_s(item, point[None])[0][0])
        return found

    def call_s(self, item: GroupTraffic, points: Ints) -> tuple[Floats, Floats]:
        """One call: its seconds, and the same with softened maxima."""
        volumes, hops = self._volumes(item, points), self._hops(item, points)
        inside = item.inside_volume
        best = soft = np.full(len(points), np.inf)
        for way in item.protocols:
            slopes = [volume * way.byte_s[level] for level, volume in enumerate(volumes, start=1)]
            start = way.start_s + item.inside_steps * way.within_s + item.copy_s
            steps = (hops * np.array(way.step_s[1:])).sum(axis=2)
            top = np.maximum(np.concatenate([s.max(axis=1)[:, None] for s in slopes], axis=1).max(axis=1),
                             inside * way.byte_s[0])  # fmt: skip
            smooth = np.maximum(soft_max(np.concatenate(slopes, axis=1)), inside * way.byte_s[0])
            best = np.minimum(best, start + steps.max(axis=1) + item.bytes * top)
            soft = np.minimum(soft, start + steps.mean(axis=1) + item.bytes * smooth)
        return best, soft

    def _volumes(self, item: GroupTraffic, points: Ints) -> list[Floats]:
        """By level: what leaves each node, then each block, as a share of `bytes` per GPU that may carry it."""
        source, target = item.edges
        out = np.bincount(source, minlength=self.nodes) * (item.weight * item.crowding / self.node_gpus)
        volumes = [out / self.speed[points[:, : self.nodes]]]
        rows = np.arange(len(points))[:, None]
        for row, gpus in zip(self.blocks, self.uplink_gpus, strict=True):
            here, there = row[points[:, source]], row[points[:, target]]
            index = (rows * len(gpus) + here)[here != there]
            count = np.bincount(index, minlength=len(points) * len(gpus)).reshape(len(points), len(gpus))
            volumes.append(count * (item.weight / gpus))
        return volumes

    def _hops(self, item: GroupTraffic, points: Ints) -> Floats:
        """Points x (groups, hops or members) x levels: messages that wait for each other across each level."""
        levels = np.arange(1, len(self.blocks) + 2)
        at = points[:, item.groups]
        if item.pattern == "pairs":
            level = self.far[at[:, :, :, None], at[:, :, None, :]]
            same = np.eye(item.groups.shape[1], dtype=np.bool_)
            peers = ((level[..., None] == levels) & ~same[:, :, None]).sum(axis=3) * item.node_members
            return np.asarray(exchange_steps(peers).reshape(len(points), -1, len(levels)))
        level = self.far[at[:, :, :-1], at[:, :, 1:]]
        crossed = (level[..., None] == levels) * item.step_factor
        if item.pattern == "ring":
            return np.asarray(crossed.sum(axis=2))
        return np.asarray(crossed.reshape(len(points), -1, len(levels)))

    @cached_property
    def bound_s(self) -> float:
        """Every collective placed as if it were alone, its groups in as few blocks as can hold them."""
        return float(sum(item.count * self._call_bound(item) for item in self.traffic))

    def _call_bound(self, item: GroupTraffic) -> float:
        length = item.groups.shape[1]
        out = np.bincount(item.edges[0], minlength=self.nodes) * (item.weight * item.crowding / self.node_gpus)
        # at best the nodes that send most have the fastest cards
        speeds = np.sort(np.repeat(self.speed, self.room))[::-1][: self.nodes]
        volumes = [float((np.sort(out)[::-1] / speeds).max())]
        fewest = [1]
        for row, gpus in zip(self.blocks, self.uplink_gpus, strict=True):
            room = np.sort(np.bincount(row, weights=self.room))[::-1].astype(np.float64)
            held = np.minimum(np.maximum(length - np.concatenate([[0.0], np.cumsum(room)[:-1]]), 0.0), room)
            touched = int((held > 0).sum())
            fewest.append(touched)
            crossing = _least_crossing(item, held, touched)
            spread = len(item.groups) * crossing * item.weight / float(gpus.sum())
            volumes.append(max(spread, self._tightest(item, room)))
        return min(self._line_bound(item, way, volumes, fewest) for way in item.protocols)

    def _tightest(self, item: GroupTraffic, room: Floats) -> float:
        """Spare nodes can empty the smallest blocks; the smallest one left is used, and one edge at least leaves it."""
        ascending = room[::-1]
        emptied = int((np.cumsum(ascending) <= self.positions - self.nodes).sum())
        smallest, length = float(ascending[emptied]), item.groups.shape[1]
        # every node of the policy is in some group of the axis, which a block with less room than it cannot hold
        edges = 0.0 if smallest >= length else float(length - 1) if item.pattern == "pairs" else 1.0
        return edges * item.weight / (smallest * self.node_gpus)

    def _line_bound(self, item: GroupTraffic, way: Protocol, volumes: Sequence[float], fewest: Sequence[int]) -> float:
        top = max(v * byte for v, byte in zip([item.inside_volume, *volumes], way.byte_s, strict=True))
        near = min(way.step_s[1:])
        hops = float(item.groups.shape[1] - 1)
        steps = {"ring": hops * near, "pass": near, "pairs": near}[item.pattern] * item.step_factor
        if item.pattern == "ring":
            far = [min(way.step_s[level:]) - near for level in range(2, len(way.step_s))]
            steps += item.step_factor * max([0.0, *((k - 1) * more for k, more in zip(fewest[1:], far, strict=True))])
        return way.start_s + item.inside_steps * way.within_s + item.copy_s + steps + item.bytes * top

    @cached_property
    def axes(self) -> list[Ints]:
        """The different sets of groups that send: groups x nodes."""
        found = {item.groups.tobytes() + bytes([item.groups.shape[1] % 256]): item.groups for item in self.traffic}
        return list(found.values())

    @cached_property
    def _next(self) -> Ints:
        """Axes x items: who follows in the group, the first after the last; spare nodes follow themselves."""
        table = np.tile(np.arange(self.positions), (len(self.axes), 1))
        for row, groups in zip(table, self.axes, strict=True):
            row[groups] = np.roll(groups, -1, axis=1)
        return table

    @cached_property
    def _runs(self) -> list[tuple[int, int]]:
        """(axis, nodes that move together): no more than a group has, which would only swap them back."""
        sizes = [groups.shape[1] for groups in self.axes]
        return [(axis, length) for axis, length in product(range(len(sizes)), RUNS) if length <= sizes[axis]]

    @property
    def moves(self) -> tuple[str, ...]:
        """Two nodes swap, alone or each with the ones that follow it in its group: who talks moves together."""
        return ("swap", *(f"swap {length} along axis {axis}" for axis, length in self._runs))

    def moved(self, points: Ints, move: Ints, one: Ints, other: Ints) -> Ints:
        points = super().moved(points, move, one, other)
        for number, (axis, length) in enumerate(self._runs, start=1):
            rows = np.flatnonzero(move == number)
            here, there = one[rows], other[rows]
            for _ in range(length - 1):
                here, there = self._next[axis, here], self._next[axis, there]
                points[rows, here], points[rows, there] = points[rows, there], points[rows, here]
        return points

    def starts(self, size: int, rng: np.random.Generator) -> Ints:
        """Half of them in any order, half regular: tiles of the policy's axes, box after box."""
        points = super().starts(size, rng)
        for row in points[: (size + 1) // 2]:
            row[self._tiled(rng)] = self.default
        return points

    def _tiled(self, rng: np.random.Generator) -> Ints:
        """The order of the items when axes are cut in tiles of random width and lie in a random order."""
        keys: list[Ints] = []
        for axis in rng.permutation(len(self.axes)):
            groups = self.axes[axis]
            place = np.full(self.positions, groups.shape[1])
            place[groups] = np.arange(groups.shape[1])
            width = 2 ** int(rng.integers(groups.shape[1].bit_length() + 1))
            # the last key counts most: tiles first, then places inside a tile
            keys = [place % width, *keys, place // width]
        return np.lexsort([np.arange(self.positions), *keys])

    @cached_property
    def _between(self) -> Floats:
        """Axes x items x items: share of a node's bytes of that axis to each other; spare nodes send none."""
        table = np.zeros((len(self.axes), self.positions, self.positions))
        for row, groups in zip(table, self.axes, strict=True):
            for item in self.traffic:
                if item.groups is groups or np.array_equal(item.groups, groups):
                    np.add.at(row, tuple(item.edges), 1.0)
        table = table + table.swapaxes(1, 2)
        return np.asarray(table / np.maximum(table.sum(axis=2, keepdims=True), 1.0))

    def _to_box(self, points: Ints) -> Floats:
        """Points x axes x items x boxes: share of an item's bytes that go to each box."""
        return np.asarray(self._between @ np.eye(len(self.room))[points][:, None])

    def signals(self, points: Ints) -> Signals:
        """Of each node: by axis the share of its bytes that stays in its box, and its box's mean; its cards' speed.

        Of the second, by axis: how much more of both nodes' bytes stay home after a swap; 1 where both lie together, so
        that a swap changes nothing; the difference of their cards' speed.
        """
        rows, sent = np.arange(len(points)), self._to_box(points)
        stays = np.take_along_axis(sent, points[:, None, :, None], axis=3)[..., 0]
        box = np.eye(len(self.room))[points] / np.array(self.room)
        own = np.take_along_axis(stays @ box, points[:, None, :], axis=2)
        mean = stays.mean(axis=2, keepdims=True)
        speed = (self.speed[points] - self.speed.mean())[:, None]

        def second(one: Ints) -> Floats:
            here, first = points[rows, one], sent[rows, :, one]
            gain = np.take_along_axis(first, points[:, None, :], axis=2) - first[rows, :, here][:, :, None]
            other = sent[rows, :, :, here] - stays
            # the two stay apart, whatever they send each other
            both = gain + other - 2.0 * self._between[:, one].swapaxes(0, 1)
            together = (points == here[:, None])[:, None] * 1.0
            faster = (self.speed[points] - self.speed[here][:, None])[:, None]
            return np.concatenate([both * SCALE, together, faster], axis=1).swapaxes(1, 2)

        return Signals(np.concatenate([stays - mean, own - mean, speed], axis=1).swapaxes(1, 2) * SCALE, second)

    def decomposition(self) -> str:
        return "what a node costs depends on where the nodes it sends to lie, and no order of placing them settles that"

    def program(self, best_s: float) -> IntegerProgram | str:  # noqa: ARG002
        from shardwise.plan.search.problems.ranks._program import rank_program

        return rank_program(self)


def _least_crossing(item: GroupTraffic, held: Floats, touched: int) -> float:
    """Edges of one group that must leave a block when it lies in as few blocks as can be."""
    length, groups = item.groups.shape[1], len(item.groups)
    if touched < 2:
        return 0.0
    if item.pattern == "pairs":
        return float(length**2 - (held**2).sum())
    if item.pattern == "ring":
        return float(touched)
    ways = item.edges.shape[1] / groups / max(length - 1, 1)
    return float((touched - 1) * max(int(ways), 1))
