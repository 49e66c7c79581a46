"""QSGD: unbiased compressed gradients, averaged; nothing is remembered."""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy


@dataclass(frozen=True)
class QSGD(Strategy):
    name: ClassVar[str] = "qsgd"
    summary: ClassVar[str] = "unbiased compressed gradients, nothing remembered"
    source: ClassVar[str] = "Alistarh et al. 2017, arXiv:1610.02132"
    gradient_only: ClassVar[bool] = True

    compressor: Compressor = field(default_factory=lambda: compressor("qsgd"))
    allow_biased: bool = False
    """only to see how it fails"""

    def __post_init__(self) -> None:
        if self.compressor.omega(2) is None and not self.allow_biased:
            raise ValueError(
                f"compressor: qsgd remembers no error, and {self.compressor.name} is biased: it can diverge on three "
                "quadratics (arXiv:2002.12410); write mem_sgd, or an unbiased one such as qsgd, natural or rand_k"
            )

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.average(self.compressor, c.encode(self.compressor, g))

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        names = ("qsgd", "terngrad", "natural", "random_quantization", "rand_k", "identity")
        return tuple(cls(compressor(name)) for name in names)


STRATEGY = QSGD
