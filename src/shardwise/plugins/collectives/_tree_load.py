"""What a double binary tree over the nodes loads the network levels with; shared by tree and nvls_tree."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Shape
from shardwise.plugins.collectives._trees import double_tree


def tree_steps(shape: Shape, passes: int) -> Floats:
    """Edges of level i on the longest way between a leaf and its root."""
    return passes * np.log2(shape.members / shape.below)


def tree_volume(shape: Shape, passes: int) -> Floats:
    """Fraction of B a GPU sends into each level, its node mates sharing the node's part.

    Two nodes swap halves: B per node for an up and a down pass. With more nodes an inner node sends one parent and
    two children half of B each, and as a leaf of the other tree another half: 2 B.
    """
    blocks = shape.size / shape.below
    per_block = np.where(blocks > 2.0, float(passes), passes / 2.0)
    if len(per_block) > 2:
        per_block[2:] = _counted(shape, passes, _busiest)[2:]
    return np.where(shape.passed, per_block / shape.below, 0.0)


def tree_average(shape: Shape, passes: int) -> Floats:
    """The same of an average GPU, counted over the edges of both trees; level 0 is left to the caller."""
    return _counted(shape, passes, _all) / shape.size


def _counted(shape: Shape, passes: int, edges: Callable[[int, int], int]) -> Floats:
    """Fraction of B that edges with their ends in different blocks below each level carry one way."""
    found = np.zeros_like(shape.members)
    for place in np.ndindex(shape.size.shape):
        members = shape.members[(slice(None), *place)]
        nodes = round(members[-1] / members[0])
        for level in range(1, len(members)):
            block = round(members[level - 1] / members[0])
            if block < nodes:
                found[(level, *place)] = passes * edges(nodes, block) / 4.0
    return found


@lru_cache(maxsize=4096)
def _between(nodes: int, block: int) -> tuple[int, ...]:
    """Of each block of so many nodes: edges of both trees with one end in it."""
    found = [0] * -(-nodes // block)
    for tree in double_tree(nodes):
        for child, parent in tree.items():
            if child // block != parent // block:
                found[child // block] += 1
                found[parent // block] += 1
    return tuple(found)


def _all(nodes: int, block: int) -> int:
    return sum(_between(nodes, block))


def _busiest(nodes: int, block: int) -> int:
    return max(_between(nodes, block))
