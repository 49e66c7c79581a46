"""Double-Squeeze: compressed both ways, with error feedback at the workers and at the server.

The server is spread over all workers by parts (all-to-all, then all-gather), so the bytes do not grow with n.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._feedback import need_contractive, server_part, squeeze
from shardwise.plugins.sync._strategy import Rate, State, Strategy


@dataclass(frozen=True)
class DoubleSqueeze(Strategy):
    name: ClassVar[str] = "double_squeeze"
    summary: ClassVar[str] = "compressed both ways, error feedback at both ends"
    source: ClassVar[str] = "Tang et al. 2019, arXiv:1905.05957"
    gradient_only: ClassVar[bool] = True

    compressor: Compressor = field(default_factory=lambda: compressor("block_top_k"))

    def __post_init__(self) -> None:
        need_contractive(self.name, self.compressor)

    def init(self, c: Communicator, x: Array) -> State:
        return {"error": x * 0.0, "server_error": server_part(c, x)}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        mean, state["error"], state["server_error"] = squeeze(
            c, self.compressor, 1, g, state["error"], state["server_error"]
        )
        return mean

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return cls(), cls(compressor("sign")), cls(compressor("top_k", ratio=0.05)), cls(compressor("int4"))


STRATEGY = DoubleSqueeze
