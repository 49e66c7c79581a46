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

from shardwise.fabric.links import Ints, Links, Routes, mixed
from shardwise.fabric.wiring import Wiring
from shardwise.spec.cluster import Cluster, Level


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
    planes: bool
    """each switch below reaches only its own"""
    capacity: float
    """bytes/s of one link to the tier below"""
    latency_s: float
    """added to the way by going up to this tier rather than only to the one below, up and down together"""


@dataclass(frozen=True)
class Tree:
    cluster: Cluster
    wiring: Wiring
    tiers: tuple[Tier, ...]
    """from the leaves up; empty where one node holds all GPUs"""
    offsets: tuple[int, ...] = field(repr=False)
    """of the link groups: into the node switch, out of it, into the leaf, out of it, then up and down of each tier"""
    links: Links = field(repr=False)

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
            if self._forwards:
                columns, hop = self._over_nvlink(src, dst, away, columns)
            ends = [np.where(away, self.offsets[2] + hop, free), np.where(away, self.offsets[3] + dst, free)]
            ups, downs = self._above_leaves(hop, dst, away, number)
            columns += [ends[0], *ups, *downs[::-1], ends[1]]
        return Routes(np.column_stack(columns), message, np.full(len(message), 1.0 / count))

    @property
    def _connections(self) -> int:
        return self.wiring.connections if self.wiring.routing == "ecmp" else 1

    @property
    def _forwards(self) -> bool:
        return self.rails > 1 and (self.wiring.rails == "only" or self.wiring.cross_rail == "nvlink")

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
            choice = (mixed(self.wiring.seed, index, src, dst, number) % np.uint64(tier.fan)).astype(np.int64)
            base = self.offsets[4 + 2 * index : 6 + 2 * index]
            up = base[0] + ((src // lower.block) * lower.switches + up_switch) * tier.fan + choice
            down = base[1] + ((dst // lower.block) * lower.switches + down_switch) * tier.fan + choice
            ups.append(np.where(apart, up, free))
            downs.append(np.where(apart, down, free))
            up_switch = down_switch = up_switch * tier.fan + choice if tier.planes else choice
            apart = apart & (src // tier.block != dst // tier.block)
        return ups, downs


def tree_of(cluster: Cluster, wiring: Wiring | None = None) -> Tree:
    wiring = wiring or Wiring()
    tiers = _tiers(cluster, wiring)
    counts = [cluster.gpus] * 4 if tiers else [cluster.gpus] * 2
    for lower, tier in pairwise(tiers):
        counts += [ceil(cluster.gpus / lower.block) * lower.switches * tier.fan] * 2
    offsets = tuple(int(n) for n in np.concatenate([[0], np.cumsum(counts)]))
    return Tree(cluster, wiring, tiers, offsets, _links(cluster, tiers, offsets))


def _tiers(cluster: Cluster, wiring: Wiring) -> tuple[Tier, ...]:
    levels = cluster.levels
    if len(levels) == 1 or cluster.gpus <= levels[0].degree:
        return ()
    leaf = levels[1]
    rails = 1 if wiring.rails == "none" else min(leaf.rails, cluster.node_size)
    if wiring.rails == "only" and rails == 1:
        raise ValueError(f"rails: {cluster.name} has one rail; write 'optimised', or a cluster whose leaves have rails")
    block = min(prod(level.degree for level in levels[:2]), cluster.gpus)
    found = [Tier(leaf.name, 1, block, rails, rails, 1, False, leaf.usable_bandwidth, leaf.latency_s)]
    above = list(enumerate(levels))[2:]
    if not above and rails > 1 and wiring.rails != "only":
        # the rails of a single unit are joined by spines of the same speed
        above = [(1, leaf)]
    for index, level in above:
        found.append(_tier(cluster, wiring, found, index, level))
    return tuple(found)


def _tier(cluster: Cluster, wiring: Wiring, lower: list[Tier], index: int, level: Level) -> Tier:
    below = lower[-1]
    degree = 1 if index == below.level else level.degree
    block = min(below.block * degree, cluster.gpus)
    uplinks = below.block * level.usable_bandwidth
    ports = max(int(uplinks / below.built / cluster.levels[1].bandwidth), 1)
    needed = ceil(ceil(block / below.block) * below.built * ports / wiring.radix)
    first = len(lower) == 1
    planes = wiring.rails == "only" if first else needed > below.built
    # a switch has no more ways up than ports
    ways = min(max(ceil(needed / below.built) if planes else needed, 1), ports)
    fan = 1 if wiring.routing == "spray" else ways
    return Tier(
        name=level.name if index != below.level else "spine", level=index, block=block,
        switches=fan * below.switches if planes else fan, built=ways * below.built if planes else ways, fan=fan,
        planes=planes, capacity=uplinks / below.switches / fan,
        latency_s=max(level.latency_s - cluster.levels[below.level].latency_s, 0.0),
    )  # fmt: skip


def _links(cluster: Cluster, tiers: tuple[Tier, ...], offsets: tuple[int, ...]) -> Links:
    node, gpus = cluster.levels[0], cluster.gpus
    groups = [(gpus, node.usable_bandwidth, node.latency_s, 0)] * 2
    if tiers:
        groups += [(gpus, tiers[0].capacity, tiers[0].latency_s, 1)] * 2
    for place, tier in enumerate(tiers[1:]):
        size = offsets[5 + 2 * place] - offsets[4 + 2 * place]
        groups += [(size, tier.capacity, tier.latency_s, tier.level)] * 2
    sizes = [size for size, _, _, _ in groups]
    names = ("nvlink" if node.kind == "nvlink" else node.kind, *_tier_names(tiers))
    return Links(
        capacity=np.repeat([c for _, c, _, _ in groups], sizes),
        latency_s=np.repeat([s / 2 for _, _, s, _ in groups], sizes),
        level=np.repeat([level for _, _, _, level in groups], sizes),
        tier=np.repeat(np.arange(len(groups)) // 2, sizes),
        tiers=names,
        name_of=lambda link: _name(cluster, tiers, offsets, link),
    )


def _tier_names(tiers: tuple[Tier, ...]) -> list[str]:
    if not tiers:
        return []
    return [f"card-{tiers[0].name}", *(f"{a.name}-{b.name}" for a, b in pairwise(tiers))]


def _name(cluster: Cluster, tiers: tuple[Tier, ...], offsets: tuple[int, ...], link: int) -> str:
    if not 0 <= link < offsets[-1]:
        raise IndexError(f"link {link} of {offsets[-1]}")
    group = int(np.searchsorted(offsets, link, side="right")) - 1
    place = link - offsets[group]
    if group < 4:
        rails = tiers[0].switches if tiers else 1
        node, local = divmod(place, cluster.node_size)
        gpu = f"node {node} gpu {local}"
        inside = f"{gpu} > its switch" if group == 0 else f"switch of node {node} > gpu {local}"
        if group < 2:
            return inside
        leaf = _switch(tiers[0], place // tiers[0].block, local % rails)
        return f"{gpu} > {leaf}" if group == 2 else f"{leaf} > {gpu}"
    index = (group - 4) // 2
    lower, tier = tiers[index], tiers[index + 1]
    child, choice = divmod(place, tier.fan)
    block, switch = divmod(child, lower.switches)
    above = switch * tier.fan + choice if tier.planes else choice
    ends = (_switch(lower, block, switch), _switch(tier, block * lower.block // tier.block, above))
    return " > ".join(ends if group % 2 == 0 else ends[::-1])


def _switch(tier: Tier, block: int, number: int) -> str:
    many = tier.built // max(tier.switches, 1)
    which = f"{block}.{number}" if tier.switches > 1 else f"{block}"
    return f"{tier.name} {which}" + (f" (x{many})" if many > 1 else "")
