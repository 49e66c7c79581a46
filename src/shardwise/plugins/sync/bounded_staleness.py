"""Stale gradients: the mean gradient is applied a fixed number of steps after it was sent, so it travels while the next
ones are computed. All workers hold the same parameters."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator, Ready
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_via


@dataclass(frozen=True)
class BoundedStaleness(Strategy):
    name: ClassVar[str] = "bounded_staleness"
    summary: ClassVar[str] = "mean gradient applied a fixed number of steps later"
    source: ClassVar[str] = "Ho et al. 2013 (stale synchronous parallel); Zinkevich et al. 2009, arXiv:0911.0491"
    gradient_only: ClassVar[bool] = True

    delay: int = 1
    via: str = "ring"

    def __post_init__(self) -> None:
        need_count("delay", self.delay)
        need_via(self.via)

    def hides_under(self) -> str:
        return "step"

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {f"sent_{slot}": Ready(x * 0.0) for slot in range(self.delay)}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        slot = f"sent_{t % self.delay}"
        arrived: Array = state[slot].wait()
        state[slot] = c.start_mean(g, self.via)
        return arrived

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(delay=2),)


STRATEGY = BoundedStaleness
