"""DecentLaM: momentum of what averaging and gradient together move, so that it does not amplify the bias."""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need, need_share
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class DecentLaM(Strategy):
    name: ClassVar[str] = "decentlam"
    summary: ClassVar[str] = "momentum of the averaged step; for unequal data"
    source: ClassVar[str] = "Yuan et al. 2021, arXiv:2104.11981"
    optimizer: ClassVar[str] = "sgd"

    topology: GossipTopology = field(default_factory=lambda: topology("ring"))
    momentum: float = 0.9

    def __post_init__(self) -> None:
        need_share("momentum", self.momentum)
        need(self, self.topology, symmetric=True, static=True, why="it diverges unless W is fixed and w_ij = w_ji")

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"momentum": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:
        mixed = c.mix(x - lr * g, self.topology, t)
        # with a learning rate of zero (warm-up) nothing moves; dividing by it would poison the momentum
        moved = g if isinstance(lr, float) and lr == 0.0 else (x - mixed) / lr
        momentum: Array = self.momentum * state["momentum"] + moved
        state["momentum"] = momentum
        return momentum


STRATEGY = DecentLaM
