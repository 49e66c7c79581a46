"""Parallel SGD: the mean gradient at every worker, by ring, tree, one parameter server or one sharded over all."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import VIA, Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_via


@dataclass(frozen=True)
class PSGD(Strategy):
    name: ClassVar[str] = "psgd"
    summary: ClassVar[str] = "mean gradient of all workers at every step"
    source: ClassVar[str] = "Dekel et al. 2012, arXiv:1012.1367"
    gradient_only: ClassVar[bool] = True

    via: str = "ring"

    def __post_init__(self) -> None:
        need_via(self.via)

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.mean(g, self.via)

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return tuple(cls(via) for via in VIA)


STRATEGY = PSGD
