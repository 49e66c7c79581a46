"""A fabric with something wrong: a link or switch away, or a link that is slow, by the name the report gives it."""

from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.graph import Graph
from shardwise.fabric.tree import BrokenCable, Tree
from shardwise.fabric.tree_build import tree_of

Fabric = Tree | Graph


def with_capacity(fabric: Fabric, capacity: Floats) -> Fabric:
    return replace(fabric, links=replace(fabric.links, capacity=capacity))


def slowed(fabric: Fabric, name: str, share: float) -> Fabric:
    """One link at a share of its speed."""
    if not 0 < share < 1:
        raise ValueError(f"slow: {name} at {share:g}; write a share of its speed above 0 and below 1, as 0.25")
    capacity = fabric.links.capacity.copy()
    capacity[link_named(fabric, name, "slow")] *= share
    return with_capacity(fabric, capacity)


def without(fabric: Fabric, name: str) -> Fabric:
    """A switch, or a link both ways, away. Of links that messages are sprayed over as one, one cable is."""
    if isinstance(fabric, Graph):
        return _graph_without(fabric, name)
    gone = _switch_down(fabric, name) or _link_down(fabric, link_named(fabric, name, "fail"))
    tree = tree_of(fabric.cluster, fabric.wiring, (*fabric.down, *gone))
    # what was slow by name before stays so
    own = tree_of(fabric.cluster, fabric.wiring, fabric.down).links.capacity
    slow = np.divide(fabric.links.capacity, own, out=np.ones(len(own)), where=own > 0)
    return with_capacity(tree, tree.links.capacity * slow)


def link_named(fabric: Fabric, name: str, flag: str) -> int:
    names = [fabric.links.name_of(link) for link in range(len(fabric.links))]
    if name not in names:
        near = get_close_matches(name, names, 2, 0.5) or [names[-1]]
        raise ValueError(
            f"{flag}: {name!r} is not a link of this fabric; write one as `links` names it, such as {near[0]!r}"
        )
    return names.index(name)


def _switch_down(tree: Tree, name: str) -> tuple[BrokenCable, ...]:
    """All cables below and above a switch of that name: 'spine 0.3', or 'spine 0' for one of those sprayed over."""
    for index, tier in enumerate(tree.tiers[1:]):
        blocks = -(-tree.gpus // tier.block)
        for block in range(blocks):
            for number in range(tier.ways * (tree.tiers[index].switches if tier.planes else 1)):
                if name in (f"{tier.name} {block}.{number}", f"{tier.name} {block}" if number == 0 else ""):
                    return _cables(tree, index, block, number)
    return ()


def _cables(tree: Tree, index: int, block: int, number: int) -> tuple[BrokenCable, ...]:
    lower, tier = tree.tiers[index], tree.tiers[index + 1]
    each = tier.block // lower.block
    children = range(block * each, min((block + 1) * each, -(-tree.gpus // lower.block)))
    switches = range(lower.switches)
    if tier.planes:
        switches = range(number // tier.ways, number // tier.ways + 1)
    below = [BrokenCable(index, child * lower.switches + s, number % tier.ways) for child in children for s in switches]
    above: list[BrokenCable] = []
    if index + 2 < len(tree.tiers) and tier.fan > 1:
        top = tree.tiers[index + 2]
        above = [BrokenCable(index + 1, block * tier.switches + number, way) for way in range(top.ways)]
    return (*below, *above)


def _link_down(tree: Tree, link: int) -> tuple[BrokenCable, ...]:
    group = int(np.searchsorted(tree.offsets, link, side="right")) - 1
    if group < 4:
        raise ValueError(
            f"fail: {tree.links.name_of(link)} is the only path of its GPU; fail a link above the leaves, or use --slow"
        )
    index = (group - 4) // 2
    child, way = divmod(link - tree.offsets[group], tree.tiers[index + 1].fan)
    return (BrokenCable(index, child, way),)


def _graph_without(graph: Graph, name: str) -> Graph:
    switches = graph.names[graph.gpus :]
    if name in switches:
        vertex = graph.names.index(name)
        gone = (graph.source == vertex) | (graph.target == vertex)
    else:
        link = link_named(graph, name, "fail")
        a, b = graph.source[link], graph.target[link]
        gone = ((graph.source == a) & (graph.target == b)) | ((graph.source == b) & (graph.target == a))
    return _kept(graph, np.flatnonzero(~gone))


def _kept(graph: Graph, kept: Ints) -> Graph:
    links, name_of = graph.links, graph.links.name_of
    fewer = replace(links, capacity=links.capacity[kept], latency_s=links.latency_s[kept], level=links.level[kept],
                    tier=links.tier[kept], name_of=lambda link: name_of(int(kept[link])))  # fmt: skip
    return replace(graph, source=graph.source[kept], target=graph.target[kept], links=fewer)
