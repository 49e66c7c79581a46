"""A Cluster's switches: how many of each tier, what hangs on what, and what every link carries."""

from dataclasses import replace
from itertools import pairwise
from math import ceil

import numpy as np

from shardwise.fabric.links import Links
from shardwise.fabric.tree import BrokenCable, Tier, Tree
from shardwise.fabric.wiring import Wiring, wired
from shardwise.spec.cluster import Cluster, Level

MOST_GPUS = 131_072
"""whose links and flows stay below 2 GiB: 65,536 took 0.3"""


def tree_of(cluster: Cluster, wiring: Wiring | None = None, down: tuple[BrokenCable, ...] = ()) -> Tree:
    """`down`: cables above the leaves that are away: hashes pick among what is left, and where packets are sprayed the
    switch has so much less."""
    if cluster.gpus > MOST_GPUS:
        raise ValueError(f"on: {cluster.name} has {cluster.gpus:,} GPUs, too many to follow link by link; write one of "
                         f"at most {MOST_GPUS:,}")  # fmt: skip
    wiring = wiring or Wiring()
    cluster = wired(cluster, wiring)
    tiers = _tiers(cluster, wiring)
    counts = [cluster.gpus] * 4 if tiers else [cluster.gpus] * 2
    for lower, tier in pairwise(tiers):
        counts += [ceil(cluster.gpus / lower.block) * lower.switches * tier.fan] * 2
    offsets = tuple(int(n) for n in np.concatenate([[0], np.cumsum(counts)]))
    tree = Tree(cluster, wiring, tiers, offsets, _links(cluster, tiers, offsets), tuple(sorted(set(down))))
    return tree if not down else replace(tree, links=_thinned(tree))


def _thinned(tree: Tree) -> Links:
    capacity = tree.links.capacity.copy()
    for index, tier in enumerate(tree.tiers[1:]):
        alive = tree.alive(index)
        if alive is None:
            continue
        left = alive.mean(axis=1) if tier.fan == 1 else alive.ravel().astype(np.float64)
        for group in (4 + 2 * index, 5 + 2 * index):
            capacity[tree.offsets[group] : tree.offsets[group + 1]] *= left
    return replace(tree.links, capacity=capacity)


def _tiers(cluster: Cluster, wiring: Wiring) -> tuple[Tier, ...]:
    levels = cluster.levels
    if len(levels) == 1 or cluster.gpus <= levels[0].degree:
        return ()
    leaf = levels[1]
    rails = cluster.rails
    if wiring.rails == "only" and rails == 1:
        raise ValueError(f"rails: {cluster.name} has one rail; write 'optimised', or a cluster whose leaves have rails")
    block = min(cluster.blocks[1], cluster.gpus)
    found = [Tier(leaf.name, 1, block, rails, rails, 1, 1, False, leaf.usable_bandwidth, leaf.latency_s)]
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
        ways=ways, planes=planes, capacity=uplinks / below.switches / fan,
        latency_s=max(level.latency_s - cluster.levels[below.level].latency_s, 0.0),
    )  # fmt: skip


def _links(cluster: Cluster, tiers: tuple[Tier, ...], offsets: tuple[int, ...]) -> Links:
    node, gpus = cluster.levels[0], cluster.gpus
    groups = [(gpus, cluster.wires[0], node.latency_s, 0)] * 2
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
