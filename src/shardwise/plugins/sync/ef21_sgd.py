"""EF21-SGD: each worker sends the compressed change of its gradient estimate.

Exact without noise, but with stochastic gradients it loses the speed-up of many workers; ef21_sgdm is its cure.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._feedback import need_contractive
from shardwise.plugins.sync._strategy import Rate, State, Strategy


@dataclass(frozen=True)
class EF21SGD(Strategy):
    name: ClassVar[str] = "ef21_sgd"
    summary: ClassVar[str] = "compressed changes of gradient estimates; suffers from noise"
    source: ClassVar[str] = "Richtarik et al. 2021, arXiv:2106.05203"
    gradient_only: ClassVar[bool] = True

    compressor: Compressor = field(default_factory=lambda: compressor("block_top_k"))

    def __post_init__(self) -> None:
        need_contractive(self.name, self.compressor)

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"estimate": x * 0.0, "mean": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        packets, state["estimate"] = c.track(self.compressor, g, state["estimate"])
        mean: Array = state["mean"] + c.average(self.compressor, packets)
        state["mean"] = mean
        return mean


STRATEGY = EF21SGD
