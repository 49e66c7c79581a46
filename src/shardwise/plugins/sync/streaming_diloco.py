"""Streaming DiLoCo: the row in fragments that are averaged in turn, each sent while training goes on.

A fragment leaves at its step and is applied `delay` steps later; every fragment has its own outer momentum, so that
none is moved by another's turn. blend: share of the local parameters that stays.
"""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, splice
from shardwise.plugins.sync._comm import Communicator, Ready
from shardwise.plugins.sync._events import part_bounds
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_share


@dataclass(frozen=True)
class StreamingDiLoCo(Strategy):
    name: ClassVar[str] = "streaming_diloco"
    summary: ClassVar[str] = "DiLoCo in fragments, sent while training goes on"
    source: ClassVar[str] = "Douillard et al. 2025, arXiv:2501.18512"

    every: int = 100
    fragments: int = 4
    delay: int = 1
    rate: float = 0.7
    momentum: float = 0.9
    blend: float = 0.0

    def __post_init__(self) -> None:
        need_count("fragments", self.fragments)
        need_count("every", self.every, self.fragments)
        need_share("momentum", self.momentum)
        need_share("blend", self.blend)
        if not 0 <= self.delay < self.every:
            raise ValueError(f"delay: {self.delay} steps; write 0 to {self.every - 1}, less than `every`")

    def period(self, n: int) -> int:  # noqa: ARG002
        return self.every

    def hides_under(self) -> str:
        return "step" if self.delay else "nothing"

    def _leaves(self, fragment: int) -> int:
        """The step of each round at which it is sent."""
        return (fragment + 1) * self.every // self.fragments - 1

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        state: State = {"anchor": x * 1.0, "momentum": x * 0.0}
        for fragment, (start, stop) in enumerate(part_bounds(x.shape[1], self.fragments)):
            state[f"sent_{fragment}"] = Ready(x[:, start:stop] * 0.0)
        return state

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        x = x1
        for fragment, (start, stop) in enumerate(part_bounds(x.shape[1], self.fragments)):
            if start == stop:
                continue
            if t % self.every == self._leaves(fragment):
                state[f"sent_{fragment}"] = c.start_mean(state["anchor"][:, start:stop] - x[:, start:stop])
            if t >= self._leaves(fragment) and (t - self.delay - self._leaves(fragment)) % self.every == 0:
                x = self._apply(state, x, fragment, start, stop)
        return x

    def _apply(self, state: State, x: Array, fragment: int, start: int, stop: int) -> Array:
        went = state[f"sent_{fragment}"].wait()
        momentum = self.momentum * state["momentum"][:, start:stop] + went
        anchor = state["anchor"][:, start:stop] - self.rate * (went + self.momentum * momentum)
        state["momentum"] = splice(state["momentum"], start, stop, momentum)
        state["anchor"] = splice(state["anchor"], start, stop, anchor)
        return splice(x, start, stop, (1.0 - self.blend) * anchor + self.blend * x[:, start:stop])

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return cls(every=4, fragments=2), cls(every=6, fragments=3, delay=0, blend=0.5)


STRATEGY = StreamingDiLoCo
