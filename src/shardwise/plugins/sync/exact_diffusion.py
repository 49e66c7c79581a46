"""Exact diffusion (D2): the last step's local update is taken back before averaging; no bias from unequal data.

psi = the local step, phi = psi + x - psi_before, x+ = (I + W) / 2 phi. What is kept is psi, which holds lr * g of its
own step, so that a changing learning rate does no harm.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class ExactDiffusion(Strategy):
    name: ClassVar[str] = "exact_diffusion"
    summary: ClassVar[str] = "neighbours, with the last correction taken back"
    source: ClassVar[str] = "Yuan et al. 2019, arXiv:1702.05122; D2: Tang et al. 2018, arXiv:1803.07068"

    topology: GossipTopology = field(default_factory=lambda: topology("ring"))

    def __post_init__(self) -> None:
        need(self, self.topology, symmetric=True, static=True, why="it diverges unless W is fixed and w_ij = w_ji")

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"psi": x * 1.0}

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        phi: Array = x1 + (x0 - state["psi"])
        state["psi"] = x1
        return phi + 0.5 * (c.mix(phi, self.topology, t) - phi)


STRATEGY = ExactDiffusion
