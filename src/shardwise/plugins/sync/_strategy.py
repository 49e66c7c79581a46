"""What a strategy must say about itself: one body for cost, simulation and run.

Two stages around the user's optimizer. `on_grad` turns the gradient into the direction the optimizer sees; `on_param`
turns the parameters before (x0) and after (x1) its step into those that stay. Both see (m, d) arrays, m the workers
held by the process, and may use arithmetic, `local` and the verbs of the communicator, nothing else.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import VIA, Communicator
from shardwise.plugins.topologies import GossipTopology
from shardwise.registry import closest

if TYPE_CHECKING:
    from typing import Self

    from shardwise.plugins.sync._asynchronous import WorkerCycle
    from shardwise.plugins.sync._cost import Cost, PricesMessages
    from shardwise.plugins.sync._layout import ParameterLayout

State = dict[str, Any]
"""arrays (m, ...) and handles, by name"""
Rate = Any
"""the learning rate: a float, or (1, d) where parameter groups differ"""


@dataclass(frozen=True)
class Strategy(ABC):
    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    optimizer: ClassVar[str] = "any"
    """'any', or 'sgd' where the equations assume x - lr * direction"""
    replicated: ClassVar[frozenset[str]] = frozenset()
    """states that are the same at every worker, so that another number of workers can go on with them"""
    gradient_only: ClassVar[bool] = False
    """all it does is turn gradients into a direction that is equal at all workers"""
    needs_whole: ClassVar[str] = ""
    """why it cannot work on a shard of the row alone; empty: it can"""

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return g

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return x1

    def check(self, n: int) -> None:
        """Refuses numbers of workers it cannot run with."""
        if n < 1:
            raise ValueError(f"workers: {n} is out of range; write a whole number of 1 or more")
        for topology in self.topologies():
            topology.check(n)

    def period(self, n: int) -> int:
        """Steps after which its traffic repeats."""
        lengths = [topology.period(n) for topology in self.topologies()]
        return max(lengths, default=1)

    def needs_optimizer(self) -> str:
        """As `optimizer`, of these settings."""
        return self.optimizer

    def hides_under(self) -> str:
        """What its messages can travel under: 'backward' (bucket by bucket), 'step' (a whole one), 'compute of others'
        (where nobody waits), 'nothing'."""
        if not self.waits():
            return "compute of others"
        return "backward" if self.gradient_only and not self.needs_whole else "nothing"

    def factors_matrices(self) -> bool:
        """Whether what it sends depends on the shapes of the parameters, not on their number alone."""
        return False

    def waits(self) -> bool:
        """Whether its workers wait for each other; where not, `cycles` says what each does."""
        return True

    def cycles(self, n: int) -> "tuple[WorkerCycle, ...] | None":  # noqa: ARG002
        """What each worker does between two deliveries, where nobody waits; None: all wait for all."""
        return None

    def steps_in(self, ticks: int, n: int) -> float:
        """Batches a worker works through in so many ticks, on average: slow ones need several for one."""
        cycles = self.cycles(n)
        return ticks * (1.0 if cycles is None else sum(each.steps / each.ticks for each in cycles) / len(cycles))

    def settles(self) -> int:
        """Steps before its traffic starts to repeat: a warm-up."""
        return 0

    def topologies(self) -> list[GossipTopology]:
        values = [getattr(self, field.name) for field in fields(self)]
        return [value for value in values if isinstance(value, GossipTopology)]

    def cost(self, shapes: "ParameterLayout | int", network: "PricesMessages", workers: int) -> "Cost":
        """Bytes, messages, seconds and memory per step; needs neither torch nor a process group."""
        from shardwise.plugins.sync._cost import cost_of

        return cost_of(self, shapes, network, workers)

    @classmethod
    def examples(cls) -> "tuple[Strategy, ...]":
        """What the conformance tests run; every way of working that sends differently."""
        return (cls(),)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Self":
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ValueError(f"{cls.name}: no setting {name!r}; {closest(name, known) if known else 'it has none'}")
        return cls(**settings)


def need(
    strategy: Strategy, topology: GossipTopology, *, symmetric: bool = False, static: bool = False, why: str
) -> None:
    """Refuses a graph the strategy is known to fail on."""
    if (symmetric and not topology.symmetric) or (static and not topology.static):
        kinds = [word for word, asked in (("symmetric", symmetric), ("static", static)) if asked]
        raise ValueError(
            f"topology: {strategy.name} on {topology.name}: {why}; write one that is {' and '.join(kinds)}, such as "
            f"ring, torus or hypercube"
        )


def need_share(what: str, value: float, *, least: float = 0.0, most: float = 1.0) -> None:
    if not least <= value <= most:
        raise ValueError(f"{what}: {value:g} is out of range; write a number from {least:g} to {most:g}")


def need_count(what: str, value: int, least: int = 1) -> None:
    if value < least:
        raise ValueError(f"{what}: {value} is out of range; write a whole number of {least} or more")


def need_via(via: str) -> None:
    if via not in VIA:
        raise ValueError(f"via: {via!r} is unknown; {closest(via, list(VIA))}")
