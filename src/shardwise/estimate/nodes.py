"""How many nodes a job takes, and whether its stages stall there."""

import numpy as np
from numpy.typing import NDArray

from shardwise.software import Stack
from shardwise.spec.cluster import Cluster
from shardwise.work.layout import Layout, Numbers


def nodes_of(layout: Layout, cluster: Cluster) -> Numbers:
    return np.asarray(np.maximum(layout.dp * layout.tp * layout.pp * layout.cp / cluster.node_size, 1.0))


def stalls(layout: Layout, stack: Stack, cluster: Cluster) -> NDArray[np.bool_]:
    """Whether transfers between stages wait as the stack's do in large jobs."""
    return np.asarray(
        (nodes_of(layout, cluster) >= stack.network.stalls_from_nodes) & (stack.network.stalled_transfer_s > 0)
    )
