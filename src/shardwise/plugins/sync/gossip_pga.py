"""Gossip with periodic global averaging: neighbours at most steps, everyone at every H-th."""

from dataclasses import dataclass, field
from math import lcm
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class GossipPGA(Strategy):
    name: ClassVar[str] = "gossip_pga"
    summary: ClassVar[str] = "neighbours, and everyone at every H-th step"
    source: ClassVar[str] = "Chen, Yuan et al. 2021, arXiv:2105.09080"

    topology: GossipTopology = field(default_factory=lambda: topology("ring"))
    every: int = 6

    def __post_init__(self) -> None:
        need_count("every", self.every)

    def period(self, n: int) -> int:
        return lcm(self.every, self.topology.period(n))

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.mean(x1) if (t + 1) % self.every == 0 else c.mix(x1, self.topology, t)


STRATEGY = GossipPGA
