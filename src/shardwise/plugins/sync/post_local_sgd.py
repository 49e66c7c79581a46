"""Post-local SGD: mean gradients until a step, Local SGD from there on."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count


@dataclass(frozen=True)
class PostLocalSGD(Strategy):
    name: ClassVar[str] = "post_local_sgd"
    summary: ClassVar[str] = "PSGD until a step, Local SGD from there on"
    source: ClassVar[str] = "Lin et al. 2020, arXiv:1808.07217"

    start: int = 1000
    every: int = 16

    def __post_init__(self) -> None:
        need_count("start", self.start, 0)
        need_count("every", self.every)

    def period(self, n: int) -> int:  # noqa: ARG002
        return self.every

    def settles(self) -> int:
        return self.start

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.mean(g) if t < self.start else g

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        due = t >= self.start and (t + 1 - self.start) % self.every == 0
        return c.mean(x1) if due else x1

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(start=2, every=2),)


STRATEGY = PostLocalSGD
