"""Which switches a link joins, by number; a card is -1."""

from itertools import pairwise
from math import ceil

import numpy as np

from shardwise.arrays import Ints
from shardwise.fabric.graph import Graph
from shardwise.fabric.tree import Tree

CARD = -1


def ends_of(fabric: Tree | Graph) -> tuple[Ints, Ints]:
    """(switch that sends, switch that receives) of every link."""
    if isinstance(fabric, Graph):
        found = [np.where(end < fabric.gpus, CARD, end - fabric.gpus) for end in (fabric.source, fabric.target)]
        return found[0], found[1]
    return _tree_ends(fabric)


def _tree_ends(tree: Tree) -> tuple[Ints, Ints]:
    source, target = (np.full(len(tree.links), CARD, dtype=np.int64) for _ in range(2))
    gpus, off = np.arange(tree.gpus), tree.offsets
    target[off[0] : off[1]] = source[off[1] : off[2]] = tree.node
    if not tree.tiers:
        return source, target
    first = int(tree.node.max()) + 1
    leaf = tree.tiers[0]
    target[off[2] : off[3]] = source[off[3] : off[4]] = first + gpus // leaf.block * leaf.switches + tree.rail
    for index, (lower, tier) in enumerate(pairwise(tree.tiers)):
        up, down, end = off[4 + 2 * index : 7 + 2 * index]
        child, way = np.divmod(np.arange(down - up), tier.fan)
        block, number = np.divmod(child, lower.switches)
        above = first + ceil(tree.gpus / lower.block) * lower.switches
        switch = number * tier.fan + way if tier.planes else way
        parent = above + block * lower.block // tier.block * tier.switches + switch
        source[up:down], target[up:down] = first + child, parent
        source[down:end], target[down:end] = parent, first + child
        first = above
    return source, target
