"""How many nodes a job takes."""

import numpy as np

from shardwise.spec.cluster import Cluster
from shardwise.work.layout import Layout, Numbers


def nodes_of(layout: Layout, cluster: Cluster) -> Numbers:
    return np.asarray(np.maximum(layout.dp * layout.tp * layout.pp * layout.cp / cluster.node_size, 1.0))
