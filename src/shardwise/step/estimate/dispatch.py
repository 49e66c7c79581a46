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


def taken_share(stack: Stack, cluster: Cluster) -> float:
    """Of a GPU's multiprocessors, those that an exchange under compute takes from it."""
    return min(stack.experts.exchange_sms / cluster.gpu.sms, 1.0)


def layer_operations(stack: Stack, dense: float, low: bool, cluster: Cluster, size: Ints, stride: Ints) -> Value:
    """Operations that a layer of routed experts launches in its forward pass; `dense`: those of its other half; `low`:
    products take eight bits or fewer."""
    experts, racked = stack.experts, cluster.levels[0].degree > BOARD
    launched = dense + experts.ops_per_expert_layer
    if racked and experts.ops_per_expert_layer_in_rack >= 0:
        near = experts.ops_per_expert_layer_in_rack
    else:
        counted = experts.ops_per_expert_layer_in_node * (experts.narrow_expert_launches if low else 1.0)
        near = dense + counted if counted >= 0 else -1.0
    return launched if near < 0 else np.where(between_nodes(cluster, size, stride), launched, near)


def unfused_share(stack: Stack, low: bool, cluster: Cluster, size: Ints, stride: Ints) -> Value:
    """1 where the experts' biases and clamps are operations of their own; `low`: products take eight bits or fewer."""
    if stack.experts.expert_biases != "fused_in_rack" or not low or cluster.levels[0].degree <= BOARD:
        return 1.0
    return between_nodes(cluster, size, stride).astype(np.float64)


def once_share(cluster: Cluster, size: Ints, stride: Ints, exchange: TokenExchange, routing: str) -> Numbers:
    """What is sent where a token goes once to each place that has some of its experts, over a copy for each expert. A
    place is a rank; between nodes it is a node, whose ranks pass it on over their own links (`forwarded_share`)."""
    shape = level_members(cluster, size, stride)
    places = np.where(shape.nodes > 1.0, shape.nodes, shape.size)
    return _reached(places, exchange, routing) / exchange.copies


def forwarded_share(cluster: Cluster, size: Ints, stride: Ints, exchange: TokenExchange, routing: str) -> Numbers:
    """The same of what ranks of a node pass on to each other of what reached it: a copy for each rank."""
    shape = level_members(cluster, size, stride)
    return np.where(shape.nodes > 1.0, _reached(shape.size, exchange, routing), 0.0) / exchange.copies


def _reached(places: Numbers, exchange: TokenExchange, routing: str) -> Numbers:
    """Of so many places with equal parts of the E experts, those that have some of a token's k: n (1 - C(E - E/n, k) /
    C(E, k)) if they are any of all, or 1 + (k - 1) n / E if they come in order, beginning anywhere."""
    experts, copies = exchange.experts, exchange.copies
    if routing == "in_order":
        return np.asarray(np.minimum(1.0 + (copies - 1.0) * places / experts, places))
    missed = np.ones_like(places)
    for drawn in range(int(copies)):
        missed = missed * np.maximum(experts - experts / places - drawn, 0.0) / (experts - drawn)
    return np.asarray(places * (1.0 - missed))
