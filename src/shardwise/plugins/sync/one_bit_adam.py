"""1-bit Adam: Adam with dense gradients until the variance is frozen; then the momentum travels as signs, both ways
with error feedback.

As in DeepSpeed there is no bias correction, and a number whose variance is zero does not move: its sign means nothing.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._feedback import need_contractive, server_part, squeeze
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_share


@dataclass(frozen=True)
class OneBitAdam(Strategy):
    name: ClassVar[str] = "one_bit_adam"
    summary: ClassVar[str] = "Adam; after a warm-up its momentum travels as signs"
    source: ClassVar[str] = "Tang et al. 2021, arXiv:2102.02888"
    optimizer: ClassVar[str] = "sgd"
    gradient_only: ClassVar[bool] = True
    replicated: ClassVar[frozenset[str]] = frozenset({"momentum", "variance"})

    freeze: int = 1000
    """steps of plain Adam first; about the learning rate's warm-up"""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    compressor: Compressor = field(default_factory=lambda: compressor("sign"))

    def __post_init__(self) -> None:
        need_count("freeze", self.freeze)
        need_share("beta1", self.beta1)
        need_share("beta2", self.beta2)
        need_contractive(self.name, self.compressor)

    def settles(self) -> int:
        return self.freeze

    def init(self, c: Communicator, x: Array) -> State:
        zero = x * 0.0
        return {"momentum": zero, "variance": zero, "error": zero, "server_error": server_part(c, x)}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        if t < self.freeze:
            mean = c.mean(g)
            state["momentum"] = self.beta1 * state["momentum"] + (1.0 - self.beta1) * mean
            state["variance"] = self.beta2 * state["variance"] + (1.0 - self.beta2) * (mean * mean)
        else:
            own = self.beta1 * state["momentum"] + (1.0 - self.beta1) * g
            state["momentum"], state["error"], state["server_error"] = squeeze(
                c, self.compressor, 1, own, state["error"], state["server_error"]
            )
        return local(self._direction, state["momentum"], state["variance"])

    def _direction(self, momentum: Array, variance: Array) -> Array:
        import torch

        return torch.where(variance > 0, momentum / (variance.sqrt() + self.eps), torch.zeros_like(momentum))

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(freeze=2),)


STRATEGY = OneBitAdam
