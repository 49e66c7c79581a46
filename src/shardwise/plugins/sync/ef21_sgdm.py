"""EF21-SGDM: EF21 on a momentum of the gradient, which takes the noise out before it is compressed."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, need_share
from shardwise.plugins.sync.ef21_sgd import EF21SGD


@dataclass(frozen=True)
class EF21SGDM(EF21SGD):
    name: ClassVar[str] = "ef21_sgdm"
    summary: ClassVar[str] = "EF21 on a momentum of the gradient: its cure"
    source: ClassVar[str] = "Fatkhullin et al. 2023, arXiv:2305.15155"

    share: float = 0.1
    """of the new gradient in the momentum"""

    def __post_init__(self) -> None:
        super().__post_init__()
        need_share("share", self.share)

    def init(self, c: Communicator, x: Array) -> State:
        return {**super().init(c, x), "momentum": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:
        momentum = g if t == 0 else (1.0 - self.share) * state["momentum"] + self.share * g
        state["momentum"] = momentum
        return super().on_grad(c, state, x, momentum, lr, t)


STRATEGY = EF21SGDM
