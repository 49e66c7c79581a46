"""Local SGD: steps alone, and the mean of all parameters at every so many steps. The optimizer's state stays local."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_via


@dataclass(frozen=True)
class LocalSGD(Strategy):
    name: ClassVar[str] = "local_sgd"
    summary: ClassVar[str] = "mean of the parameters every H steps"
    source: ClassVar[str] = "Stich 2019, arXiv:1805.09767"

    every: int = 16
    via: str = "ring"

    def __post_init__(self) -> None:
        need_count("every", self.every)
        need_via(self.via)

    def period(self, n: int) -> int:  # noqa: ARG002
        return self.every

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.mean(x1, self.via) if (t + 1) % self.every == 0 else x1

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(every=3),)


STRATEGY = LocalSGD
