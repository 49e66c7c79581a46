"""How a program sends tokens to their experts, by where these lie: inside one node, in an NVLink domain of several
nodes, or on nodes that a network joins."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.cost.placement import level_members
from shardwise.spec.cluster import Cluster
from shardwise.spec.software import Stack
from shardwise.work.layout import Numbers
from shardwise.work.ops import Value


class TokenExchange(Protocol):
    """Tokens on their way to experts."""

    @property
    def copies(self) -> float: ...

    @property
    def experts(self) -> float: ...


BOARD = 8
"""GPUs under one host at most (HGX); a wider NVLink domain joins several"""


def between_nodes(cluster: Cluster, size: Ints | Numbers, stride: Ints) -> NDArray[np.bool_]:
    """Whether the ranks of a group lie beyond one NVLink domain."""
    return np.asarray(stride * size > cluster.node_size)


def hidden_exchange(stack: Stack, cluster: Cluster, size: Ints, stride: Ints) -> Value:
    """Share of the expert exchange that runs under compute."""
    within, between = stack.experts.overlap_ep, stack.experts.overlap_ep_between_nodes
    return within if between < 0 else np.where(between_nodes(cluster, size, stride), between, within)


def layer_operations(stack: Stack, dense: float, cluster: Cluster, size: Ints, stride: Ints) -> Value:
    """Operations that a layer of routed experts launches in its forward pass; `dense`: those of its other half."""
    experts, racked = stack.experts, cluster.levels[0].degree > BOARD
    launched = dense + experts.ops_per_expert_layer
    if racked:
        near = experts.ops_per_expert_layer_in_rack
    else:
        near = dense + counted if (counted := experts.ops_per_expert_layer_in_node) >= 0 else -1.0
    return launched if near < 0 else np.where(between_nodes(cluster, size, stride), launched, near)


def unfused_share(stack: Stack, low: bool, cluster: Cluster, size: Ints, stride: Ints) -> Value:
    """1 where the experts' biases and clamps are operations of their own; `low`: products take eight bits or fewer."""
    if stack.experts.expert_biases != "fused_in_rack" or not low or cluster.levels[0].degree <= BOARD:
        return 1.0
    return between_nodes(cluster, size, stride).astype(np.float64)


def once_share(cluster: Cluster, size: Ints, stride: Ints, exchange: TokenExchange, routing: str) -> Numbers:
    """What is sent where a token goes once to each place that has some of its experts, over a copy for each expert.

    A place is a rank; between nodes it is a node, whose ranks pass it on (DeepEP). k experts drawn evenly from n places
    lie in n (1 - (1 - 1/n)^k) of them; k experts in order, beginning anywhere, in 1 + (k - 1) / (experts of a place).
    """
    shape = level_members(cluster, size, stride)
    places = np.where(shape.nodes > 1.0, shape.nodes, shape.size)
    copies = exchange.copies
    if routing == "in_order":
        reached = np.minimum(1.0 + (copies - 1.0) * places / exchange.experts, places)
    else:
        reached = places * (1.0 - (1.0 - 1.0 / places) ** copies)
    return np.asarray(reached / copies)
