"""SlowMo: Local SGD, and a slow momentum over the movement between two averagings."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_share


@dataclass(frozen=True)
class SlowMo(Strategy):
    name: ClassVar[str] = "slowmo"
    summary: ClassVar[str] = "Local SGD with slow momentum between averagings"
    source: ClassVar[str] = "Wang et al. 2020, arXiv:1910.00643"
    replicated: ClassVar[frozenset[str]] = frozenset({"anchor", "momentum"})

    every: int = 48
    momentum: float = 0.5
    rate: float = 1.0

    def __post_init__(self) -> None:
        need_count("every", self.every)
        need_share("momentum", self.momentum)

    def period(self, n: int) -> int:  # noqa: ARG002
        return self.every

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"anchor": x * 1.0, "momentum": x * 0.0}

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        if (t + 1) % self.every:
            return x1
        mean = c.mean(x1)
        if isinstance(lr, float) and lr == 0.0:
            return mean
        state["momentum"] = self.momentum * state["momentum"] + (state["anchor"] - mean) / lr
        anchor: Array = state["anchor"] - (self.rate * lr) * state["momentum"]
        state["anchor"] = anchor
        return anchor

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(every=3),)


STRATEGY = SlowMo
