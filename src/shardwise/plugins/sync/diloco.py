"""DiLoCo: many inner steps of the user's optimizer (AdamW in the paper), then a Nesterov step on how far they went."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_share


@dataclass(frozen=True)
class DiLoCo(Strategy):
    name: ClassVar[str] = "diloco"
    summary: ClassVar[str] = "many local steps, then an outer Nesterov step"
    source: ClassVar[str] = "Douillard et al. 2023, arXiv:2311.08105"
    replicated: ClassVar[frozenset[str]] = frozenset({"anchor", "momentum"})

    every: int = 500
    rate: float = 0.7
    momentum: float = 0.9

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
        went = c.mean(state["anchor"] - x1)
        state["momentum"] = self.momentum * state["momentum"] + went
        anchor: Array = state["anchor"] - self.rate * (went + self.momentum * state["momentum"])
        state["anchor"] = anchor
        return anchor

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(every=3),)


STRATEGY = DiLoCo
