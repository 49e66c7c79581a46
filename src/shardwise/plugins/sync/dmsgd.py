"""Decentralized momentum SGD: momentum at each worker, then the mean with the neighbours.

With unequal data its bias is that of DSGD at lr / (1 - momentum); mix_momentum sends the momentum too and has less.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_share
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class DmSGD(Strategy):
    name: ClassVar[str] = "dmsgd"
    summary: ClassVar[str] = "DSGD with momentum at each worker"
    source: ClassVar[str] = "Assran et al. 2019, arXiv:1811.10792; Ying et al. 2021, arXiv:2110.13363"
    optimizer: ClassVar[str] = "sgd"

    topology: GossipTopology = field(default_factory=lambda: topology("one_peer_exp"))
    momentum: float = 0.9
    mix_momentum: bool = False

    def __post_init__(self) -> None:
        need_share("momentum", self.momentum)

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"momentum": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        momentum: Array = self.momentum * state["momentum"] + g
        if self.mix_momentum:
            momentum = c.mix(momentum, self.topology, t)
        state["momentum"] = momentum
        return momentum

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.mix(x1, self.topology, t)

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return cls(), cls(mix_momentum=True)


STRATEGY = DmSGD
