"""Quasi-global momentum: the momentum of how the parameters moved between two averagings, not of local gradients."""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_share
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class QGDSGDm(Strategy):
    name: ClassVar[str] = "qg_dsgdm"
    summary: ClassVar[str] = "DSGD with momentum of the global movement"
    source: ClassVar[str] = "Lin et al. 2021, arXiv:2102.04761"
    optimizer: ClassVar[str] = "sgd"

    topology: GossipTopology = field(default_factory=lambda: topology("one_peer_exp"))
    momentum: float = 0.9
    smoothing: float = 0.9

    def __post_init__(self) -> None:
        need_share("momentum", self.momentum)
        need_share("smoothing", self.smoothing)

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"momentum": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        direction: Array = self.momentum * state["momentum"] + g
        return direction

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:
        x = c.mix(x1, self.topology, t)
        if not (isinstance(lr, float) and lr == 0.0):
            state["momentum"] = self.smoothing * state["momentum"] + (1.0 - self.smoothing) * ((x0 - x) / lr)
        return x


STRATEGY = QGDSGDm
