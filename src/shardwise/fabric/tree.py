"""The link graph of a Cluster: GPUs under node switches, cards under leaves, leaves under spines, spines under cores.

The way between two GPUs follows from their numbers alone, so ten thousand ways cost a few array operations. Switches
of one tier in one block are equal; a message goes up to the first block that holds both ends, over one switch in each
tier, and comes down over the switches of the same number. From the third tier on a switch reaches only the switches of
its own plane above it, as in a folded Clos network. With spraying the equal switches of a tier are one of their summed
capacity.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Flags, Ints
from shardwise.fabric.links import Links, Routes, mixed
from shardwise.fabric.wiring import Wiring
from shardwise.spec.cluster import Cluster


@dataclass(frozen=True)
class Tier:
    """Switches between the GPUs and the top; one block holds `switches` equal ones."""

    name: str
    level: int
    block: int
    """GPUs under one block"""
    switches: int
    """in one block, as a message sees them"""
    built: int
    """in one block, as bought"""
    fan: int
    """switches of this tier that one switch below reaches"""
    ways: int
    """the same, as bought: sprayed messages see them as one"""
    planes: bool
    """each switch below reaches only its own"""
    capacity: float
    """bytes/s of one link to the tier below"""
    latency_s: float
    """added to the way by going up to this tier rather than only to the one below, up and down together"""


@dataclass(frozen=True, order=True)
class BrokenCable:
    """One cable of a switch to the tier above it that is away."""

    index: int
    """0: between leaves and spines"""
    child: int
    way: int


@dataclass(frozen=True)
class Tree:
    cluster: Cluster
    wiring: Wiring
    tiers: tuple[Tier, ...]
    """from the leaves up; empty where one node holds all GPUs"""
    offsets: tuple[int, ...] = field(repr=False)
    """of the link groups: into the node switch, out of it, into the leaf, out of it, then up and down of each tier"""
    links: Links = field(repr=False)
    down: tuple[BrokenCable, ...] = ()
    """cables above the leaves that are away"""

    @property
    def gpus(self) -> int:
        return self.cluster.gpus

    @property
    def rails(self) -> int:
        return self.tiers[0].switches if self.tiers else 1

    @cached_property
    def node(self) -> Ints:
        return np.arange(self.gpus) // self.cluster.node_size

    @cached_property
    def rail(self) -> Ints:
        return np.arange(self.gpus) % self.cluster.node_size % self.rails

    @cached_property
    def unit(self) -> Ints:
        block = self.tiers[0].block if self.tiers else self.gpus
        return np.arange(self.gpus) // block

    def reducing(self, gpus: Ints) -> tuple[Ints, Ints]:
        return gpus + self.offsets[0], gpus + self.offsets[1]

    def adding(self, sums: Ints) -> Ints:
        """Every leaf adds what its cards send and hands one sum up, and so does every switch above until all meet."""
        if not self.tiers:
            raise ValueError(f"{self.cluster.name}: no switch above the nodes that could add; name another algorithm")
        found = [self.offsets[2] + sums.ravel(), self.offsets[3] + sums.ravel()]
        number = np.repeat(np.arange(len(sums)), sums.shape[1])
        gpus, switch = sums.ravel(), self.rail[sums.ravel()]
        for index, (lower, tier) in enumerate(pairwise(self.tiers)):
            child = gpus // lower.block * lower.switches + switch
            met = np.unique(np.column_stack([number, child]), axis=0)
            apart = np.bincount(met[:, 0], minlength=len(sums)) > 1
            met = met[apart[met[:, 0]]]
            choice = (mixed(self.wiring.seed, index, np.arange(len(sums))) % np.uint64(tier.fan)).astype(np.int64)
            base = self.offsets[4 + 2 * index : 6 + 2 * index]
            found += [base[way] + met[:, 1] * tier.fan + choice[met[:, 0]] for way in (0, 1)]
            picked = choice[number]
            switch = switch * tier.fan + picked if tier.planes else picked
        top = self.tiers[-1]
        meets = np.unique(np.column_stack([number, gpus // top.block * top.switches + switch]), axis=0)
        if (np.bincount(meets[:, 0]) > 1).any():
            raise ValueError(f"{self.cluster.name}: no switch joins all parts of a sum; name another algorithm")
        return np.concatenate(found)

    def routes(self, source: Ints, target: Ints) -> Routes:
        """The ways of messages from `source` to `target`; a message to itself takes no link."""
        count, messages = self._connections, len(source)
        message = np.repeat(np.arange(messages), count)
        number = np.tile(np.arange(count), messages)
        src, dst = source[message], target[message]
        free, node = len(self.links), self.cluster.node_size
        away = src // node != dst // node
        near = (src != dst) & ~away
        columns = [np.where(near, self.offsets[0] + src, free), np.where(near, self.offsets[1] + dst, free)]
        if self.tiers:
            hop = src
            if self.forwards:
                columns, hop = self._over_nvlink(src, dst, away, columns)
            ends = [np.where(away, self.offsets[2] + hop, free), np.where(away, self.offsets[3] + dst, free)]
            ups, downs = self._above_leaves(hop, dst, away, number)
            columns += [ends[0], *ups, *downs[::-1], ends[1]]
        return Routes(np.column_stack(columns), message, np.full(len(message), 1.0 / count))

    @property
    def _connections(self) -> int:
        return self.wiring.connections if self.wiring.routing == "ecmp" else 1

    @property
    def forwards(self) -> bool:
        return self.rails > 1 and (self.wiring.rails == "only" or self.cluster.forwards)

    def _over_nvlink(self, src: Ints, dst: Ints, away: Ints, columns: list[Ints]) -> tuple[list[Ints], Ints]:
        """To the GPU of the same node (and tray) whose card is on the target's rail."""
        local = src % self.cluster.node_size
        place = local // self.rails * self.rails + self.rail[dst]
        place = np.where(place < self.cluster.node_size, place, self.rail[dst])
        hop = np.where(away, src - local + place, src)
        moved = away & (hop != src)
        into, out = (np.where(moved, self.offsets[i] + gpu, columns[i]) for i, gpu in enumerate((src, hop)))
        return [into, out], hop

    def _above_leaves(self, src: Ints, dst: Ints, away: Ints, number: Ints) -> tuple[list[Ints], list[Ints]]:
        free, ups, downs = len(self.links), [], []
        up_switch, down_switch = self.rail[src], self.rail[dst]
        leaf = self.tiers[0]
        apart = away & ((src // leaf.block != dst // leaf.block) | (up_switch != down_switch))
        for index, (lower, tier) in enumerate(pairwise(self.tiers)):
            pick = self._pick(index, src, dst, number)
            ends = [(gpu // lower.block) * lower.switches + at for gpu, at in ((src, up_switch), (dst, down_switch))]
            choice = self._left(index, pick, ends[0], ends[1], apart)
            base = self.offsets[4 + 2 * index : 6 + 2 * index]
            up, down = (base[way] + ends[way] * tier.fan + choice for way in (0, 1))
            ups.append(np.where(apart, up, free))
            downs.append(np.where(apart, down, free))
            up_switch = down_switch = up_switch * tier.fan + choice if tier.planes else choice
            apart = apart & (src // tier.block != dst // tier.block)
        return ups, downs

    def _pick(self, index: int, src: Ints, dst: Ints, number: Ints) -> NDArray[np.uint64]:
        """Of each connection: what a tier's choice follows from."""
        seed, hashes = self.wiring.seed, self.wiring.hashes
        if hashes == "turn":
            below = prod(tier.fan for tier in self.tiers[1 : index + 1])
            return mixed(seed, index, src, dst) + (number // below).astype(np.uint64)
        return mixed(seed, index if hashes == "distinct" else 0, src, dst, number)

    def alive(self, index: int) -> Flags | None:
        """switches of a tier x their ways up: which are there; None where nothing is away."""
        lower, tier = self.tiers[index], self.tiers[index + 1]
        gone = [each for each in self.down if each.index == index]
        if not gone:
            return None
        found = np.ones((ceil(self.gpus / lower.block) * lower.switches, tier.ways), dtype=np.bool_)
        for each in gone:
            found[each.child, each.way] = False
        return found

    def _left(self, index: int, pick: NDArray[np.uint64], up: Ints, down: Ints, used: Flags) -> Ints:
        """The way a hash picks; where that is away at either end, one of those that are left."""
        tier, alive = self.tiers[index + 1], self.alive(index)
        choice = (pick % np.uint64(tier.fan)).astype(np.int64)
        if alive is None or not used.any():
            return choice
        rows = np.flatnonzero(used)
        allowed = alive[up[rows]] & alive[down[rows]] if tier.fan > 1 else alive[up[rows]]
        none = np.flatnonzero(~allowed.any(axis=1) | ~alive[down[rows]].any(axis=1))
        if len(none):
            ends = [self._switch_name(index, int(end[rows[none[0]]])) for end in (up, down)]
            raise ValueError(f"fail: no path is left from {ends[0]} to {ends[1]}; leave it one {tier.name}")
        if tier.fan == 1:
            return choice
        lost = ~allowed[np.arange(len(rows)), choice[rows]]
        rest = allowed[lost]
        wanted = pick[rows[lost]] % rest.sum(axis=1).astype(np.uint64)
        choice[rows[lost]] = np.argmax(np.cumsum(rest, axis=1) > wanted.astype(np.int64)[:, None], axis=1)
        return choice

    def _switch_name(self, index: int, child: int) -> str:
        lower = self.tiers[index]
        block, switch = divmod(child, lower.switches)
        return f"{lower.name} {block}.{switch}" if lower.switches > 1 else f"{lower.name} {block}"
