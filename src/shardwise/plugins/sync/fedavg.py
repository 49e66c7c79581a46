"""FedAvg: of all workers some are drawn for each round; they train alone and a server averages them by their samples.

Who is not drawn stands still (the state of its optimizer does not). After a round the workers drawn for the next one
hold the server's model.
"""

import random
from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count


@dataclass(frozen=True)
class FedAvg(Strategy):
    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "a server averages the workers drawn for a round"
    source: ClassVar[str] = "McMahan et al. 2017, arXiv:1602.05629"

    every: int = 16
    drawn: int = 0
    """workers of a round; 0: all"""
    samples: tuple[int, ...] = ()
    """of each worker, repeated as needed; empty: all alike"""

    def __post_init__(self) -> None:
        need_count("every", self.every)
        need_count("drawn", self.drawn, 0)
        if any(count < 1 for count in self.samples):
            raise ValueError(f"samples: {self.samples}; write the number of samples of each worker, 1 or more")

    def check(self, n: int) -> None:
        super().check(n)
        if self.drawn > n:
            raise ValueError(f"drawn: {self.drawn} of {n} workers; write at most {n}")

    def period(self, n: int) -> int:  # noqa: ARG002
        return self.every if not self.drawn else 16 * self.every

    def members(self, n: int, seed: int, round_: int) -> tuple[int, ...]:
        if self.drawn in (0, n):
            return tuple(range(n))
        return tuple(sorted(random.Random(1_000_003 * seed + round_).sample(range(n), self.drawn)))

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        members = self.members(c.n, c.seed, t // self.every)
        active = c.rows([float(i in members) for i in range(c.n)])
        x = local(_where, x1, x0, active)
        if (t + 1) % self.every:
            return x
        weights = [float(self.samples[i % len(self.samples)]) if self.samples else 1.0 for i in range(c.n)]
        total = c.push(c.rows(weights) * x, members)
        mean = total / sum(weights[i] for i in members)
        return c.pull(x, mean, self.members(c.n, c.seed, t // self.every + 1))

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return cls(every=2), cls(every=2, drawn=2, samples=(1, 3))


def _where(x1: Array, x0: Array, active: Array) -> Array:
    import torch

    return torch.where(active > 0, x1, x0)


STRATEGY = FedAvg
