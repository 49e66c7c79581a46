"""What a double binary tree over the nodes loads the network levels with; shared by tree and nvls_tree."""

import numpy as np

from shardwise.collectives._contract import Floats, Shape


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
    return np.where(shape.crossed, per_block / shape.below, 0.0)
