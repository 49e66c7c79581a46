"""MEM-SGD (error feedback): what a compressed gradient leaves out is added to the next one."""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.compressors._contracted import contracted
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count


@dataclass(frozen=True)
class MemSGD(Strategy):
    name: ClassVar[str] = "mem_sgd"
    summary: ClassVar[str] = "compressed gradients with error feedback"
    source: ClassVar[str] = "Stich et al. 2018, arXiv:1809.07599; Karimireddy et al. 2019, arXiv:1901.09847"
    gradient_only: ClassVar[bool] = True

    compressor: Compressor = field(default_factory=lambda: compressor("block_top_k"))
    """an unbiased one is scaled by 1 / (1 + omega)"""
    warmup: int = 0
    """steps with dense gradients first"""
    fold_lr: bool = False
    """keep the error in units of the update, so that a falling learning rate does not shrink it"""

    def __post_init__(self) -> None:
        need_count("warmup", self.warmup, 0)

    def settles(self) -> int:
        return self.warmup

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"error": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        if t < self.warmup:
            return c.mean(g)
        codec = contracted(self.compressor)
        packets, state["error"] = c.feed_back(codec, lr * g if self.fold_lr else g, state["error"])
        mean = c.average(codec, packets)
        return mean / lr if self.fold_lr else mean

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        names = ("block_top_k", "top_k", "sign", "rand_k", "qsgd", "low_rank", "natural")
        return (
            *(cls(compressor(name)) for name in names),
            cls(compressor("top_k", ratio=0.05), warmup=2, fold_lr=True),
            cls(compressor("int4")),
        )


STRATEGY = MemSGD
