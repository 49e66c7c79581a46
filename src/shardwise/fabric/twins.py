"""Two jobs in one fabric: the same job twice, its nodes and the other's in turn."""

from dataclasses import replace

import numpy as np
from msgspec.structs import replace as changed

from shardwise.fabric.place import Seats
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of

Placed = tuple[Tree, Seats]


def on_double(seats: Seats, tree: Tree) -> tuple[Placed, Placed]:
    """(the job alone, both jobs) in a fabric with twice as many blocks at its top; what was cabled or slow there by
    name is as new. Both jobs do the same at the same time, which is when they meet most."""
    cluster = tree.cluster
    top = cluster.levels[-1]
    levels = (*cluster.levels[:-1], changed(top, degree=2 * top.degree))
    double = tree_of(changed(cluster, gpus=2 * cluster.gpus, levels=levels), tree.wiring)
    local = cluster.node_size
    first = seats.gpu // local * 2 * local + seats.gpu % local
    order = np.lexsort([double.rail, double.node, double.unit])
    key = np.empty(len(order), dtype=np.int64)
    key[order] = np.arange(len(order))
    mine, other = (replace(seats, gpu=gpu, sort_key=key) for gpu in (first, first + local))
    return (double, mine), (double, replace(mine, twin=other))
