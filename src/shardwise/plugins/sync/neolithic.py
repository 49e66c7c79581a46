"""NEOLITHIC: Double-Squeeze whose compressor is used R times on what is left; R gradients are averaged per step.

The user accumulates R micro-batches, so the bytes per sample are those of Double-Squeeze. For Top-K the R rounds are
one Top-(RK), bit for bit, and are sent as one.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.compressors._contracted import contracted
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._feedback import server_part, squeeze
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count


@dataclass(frozen=True)
class Neolithic(Strategy):
    name: ClassVar[str] = "neolithic"
    summary: ClassVar[str] = "Double-Squeeze compressing R times what is left"
    source: ClassVar[str] = "Huang, Chen, Yin and Yuan 2022, arXiv:2206.03665"
    gradient_only: ClassVar[bool] = True

    compressor: Compressor = field(default_factory=lambda: compressor("top_k", ratio=0.05))
    rounds: int = 2

    def __post_init__(self) -> None:
        need_count("rounds", self.rounds)

    def init(self, c: Communicator, x: Array) -> State:
        return {"error": x * 0.0, "server_error": server_part(c, x)}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        codec = contracted(self.compressor)
        once = codec.repeated(self.rounds)
        mean, state["error"], state["server_error"] = squeeze(
            c, once or codec, 1 if once else self.rounds, g, state["error"], state["server_error"]
        )
        return mean

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return cls(), cls(compressor("sign")), cls(compressor("random_quantization"))


STRATEGY = Neolithic
