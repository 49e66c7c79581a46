"""FedBuff: workers train alone for as long as they need and deliver how far they went; the server applies the mean of
every K arrivals."""

from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._arrivals import arrivals, check_periods, chosen, cycles_of
from shardwise.plugins.sync._asynchronous import WorkerCycle
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count


@dataclass(frozen=True)
class FedBuff(Strategy):
    name: ClassVar[str] = "fedbuff"
    summary: ClassVar[str] = "a server applies the mean of every K arrivals"
    source: ClassVar[str] = "Nguyen et al. 2022, arXiv:2106.06639"

    buffer: int = 10
    periods: tuple[int, ...] = (1,)
    """local steps of each worker between two deliveries, repeated as needed"""
    rate: float = 1.0

    def __post_init__(self) -> None:
        need_count("buffer", self.buffer)
        check_periods(self.periods)

    def waits(self) -> bool:
        return False

    def cycles(self, n: int) -> tuple[WorkerCycle, ...]:
        return cycles_of(self.periods, n, one_step=False)

    def period(self, n: int) -> int:
        return lcm(*(self.periods[i % len(self.periods)] for i in range(n)))

    def _held(self, n: int, t: int) -> int:
        """Arrivals in the buffer before tick t."""
        levels = _levels(self.periods, self.buffer, n)
        while len(levels) <= t:
            held = levels[-1] + len(arrivals(self.periods, n, len(levels) - 1))
            levels.append(0 if held >= self.buffer else held)
        return levels[t]

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"server": x * 1.0, "buffer": x * 0.0, "fetched": x * 1.0}

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        here = arrivals(self.periods, c.n, t)
        if not here:
            return x1
        state["buffer"] = state["buffer"] + c.push(state["fetched"] - x1, here)
        held = self._held(c.n, t) + len(here)
        if held >= self.buffer:
            state["server"] = state["server"] - self.rate * (state["buffer"] / held)
            state["buffer"] = state["buffer"] * 0.0
        x = c.pull(x1, state["server"], here)
        mask = c.rows([float(i in here) for i in range(c.n)])
        state["fetched"] = local(chosen, x, state["fetched"], mask)
        return x

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(buffer=3, periods=(1, 2, 3)),)


@lru_cache(maxsize=64)
def _levels(periods: tuple[int, ...], buffer: int, n: int) -> list[int]:  # noqa: ARG001
    """How full the buffer is before each tick, as far as it was asked for."""
    return [0]


STRATEGY = FedBuff
