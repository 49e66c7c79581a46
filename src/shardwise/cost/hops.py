"""Messages between neighbours of a group, such as pipeline stages: each hop at the pace of the level it crosses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Network, distinct
from shardwise.plugins.collectives import Shape, collective


@dataclass(frozen=True)
class Hops:
    """One message from each rank of a group to the next, in seconds."""

    slowest: Floats
    nearest: Floats
    """the quickest of them"""
    mean: Floats
    outside: Floats
    """share of the hops that leave a node"""

    def take(self, groups: Ints) -> "Hops":
        return Hops(self.slowest[groups], self.nearest[groups], self.mean[groups], self.outside[groups])


def hops_of(network: Network, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1) -> Hops:
    """Neighbours of a group may share a node, a leaf or neither."""
    ranks, apart, group = distinct(size, stride)
    share, part = _crossing(network, network.shape(ranks, apart))
    message = np.asarray(bytes_, dtype=np.float64)
    zero = np.zeros(np.broadcast_shapes(message.shape, group.shape))
    slowest, nearest, mean = zero, zero + np.inf, zero
    for level, crossing in enumerate(share):
        if crossing.any():
            seconds, often = _hop_seconds(network, message, part[level], level, group), crossing[group]
            used = often > 0.0
            slowest = np.where(used, np.maximum(slowest, seconds), slowest)
            nearest = np.where(used, np.minimum(nearest, seconds), nearest)
            mean = mean + often * seconds
    outside = share[1:].sum(axis=0)[group]
    return Hops(slowest, np.where(slowest > 0.0, nearest, 0.0), mean, outside)


def _crossing(network: Network, shape: Shape) -> tuple[Floats, Floats]:
    """(share of the hops that cross each level and no higher one, part of a message that counts there: who leaves a
    block with few others has more than a GPU's share of its ways up)."""
    cluster, share = network.cluster, shape.hops / np.maximum(shape.size - 1.0, 1.0)
    if cluster.rails > 1 and not cluster.forwards and len(share) > 2:
        # two rails of one group of leaves meet in a spine
        turned = np.where(shape.next_on_rail, 0.0, share[1])
        share[1], share[2] = share[1] - turned, share[2] + turned
    part = np.ones_like(shape.members)
    if shape.one_rail is not None:
        part[2:] = np.clip(shape.leaving[2:], shape.one_rail[2:], 1.0)
    return share, part


def _hop_seconds(network: Network, bytes_: Floats, part: Floats, level: int, group: Ints) -> Floats:
    """A message through a level: at the pace of its card, or of the ways above that it shares."""
    if level < 2:
        return _send_seconds(network, bytes_, level)
    return np.maximum(_send_seconds(network, bytes_ * part[group], level), _send_seconds(network, bytes_, 1))


def _send_seconds(network: Network, bytes_: Floats, level: int) -> Floats:
    """Between two GPUs that meet at a level, all others of their blocks doing the same."""
    ways = []
    for protocol in network.protocols(collective("send")):
        slope = max(protocol.byte_s[1 : level + 1], default=protocol.byte_s[0])
        if not level:
            slope /= float(network.cluster.levels[0].mesh_share(np.array(2.0)))
        ways.append(slope * bytes_ + (protocol.start_s + protocol.step_s[level]))
    return np.asarray(np.minimum.reduce(ways))
