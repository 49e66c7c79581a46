"""Asynchronous SGD: the server applies each worker's step when it arrives, computed at the parameters it fetched then.

With workers of unequal speed and unequal data the fast ones' data weigh more: a bias no learning rate removes.
"""

from dataclasses import dataclass
from math import lcm
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._arrivals import arrivals, check_periods, cycles_of
from shardwise.plugins.sync._asynchronous import WorkerCycle
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy


@dataclass(frozen=True)
class AsyncSGD(Strategy):
    name: ClassVar[str] = "async_sgd"
    summary: ClassVar[str] = "a server applies steps as they arrive"
    source: ClassVar[str] = "Recht et al. 2011, arXiv:1106.5730; Mishchenko et al. 2022, arXiv:2206.07638"
    optimizer: ClassVar[str] = "sgd"  # a step that is not done yet must leave no trace in an optimizer's state

    periods: tuple[int, ...] = (1,)
    """ticks each worker needs for a step, repeated as needed"""
    rate: float = 0.0
    """of a worker's step at the server; 0: 1 / n, as a mean would weigh it"""

    def __post_init__(self) -> None:
        check_periods(self.periods)

    def waits(self) -> bool:
        return False

    def cycles(self, n: int) -> tuple[WorkerCycle, ...]:
        return cycles_of(self.periods, n, one_step=True)

    def period(self, n: int) -> int:
        return lcm(*(self.periods[i % len(self.periods)] for i in range(n)))

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"server": x * 1.0}

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        here = arrivals(self.periods, c.n, t)
        if not here:
            return x0
        total = c.push(x0 - x1, here)
        state["server"] = state["server"] - (self.rate or 1.0 / c.n) * total
        # a worker that is not done has not stepped: it is still computing at what it fetched
        return c.pull(x0, state["server"], here)

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(periods=(1, 2, 3)),)


STRATEGY = AsyncSGD
