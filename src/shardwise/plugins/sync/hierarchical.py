"""Hierarchical: one strategy inside groups of neighbours (a node), another across them.

Where the inner one leaves the workers of a group equal, every member works across on its own part of the row with its
counterparts, and the parts are gathered inside: each byte leaves a node once, as in a two-level all-reduce. Where it
does not (Local SGD inside a node), parts of different members would not fit together, so each member takes its whole
row across.
"""

from dataclasses import dataclass, field
from math import lcm
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._asynchronous import WorkerCycle
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count
from shardwise.plugins.sync.diloco import DiLoCo
from shardwise.plugins.sync.dsgd import DSGD
from shardwise.plugins.sync.local_sgd import LocalSGD
from shardwise.plugins.sync.mem_sgd import MemSGD
from shardwise.plugins.sync.one_bit_adam import OneBitAdam
from shardwise.plugins.sync.psgd import PSGD
from shardwise.plugins.topologies import topology


@dataclass(frozen=True)
class Hierarchical(Strategy):
    name: ClassVar[str] = "hierarchical"
    summary: ClassVar[str] = "one strategy inside a node, another across nodes"
    source: ClassVar[str] = "as the 8-GPU nodes of Ying et al. 2021, arXiv:2110.13363"

    needs_whole: ClassVar[str] = "it cuts the row for its own two levels"

    inner: Strategy = field(default_factory=PSGD)
    outer: Strategy = field(default_factory=DSGD)
    size: int = 8
    """workers of a group"""

    def __post_init__(self) -> None:
        need_count("size", self.size)
        if self.inner.optimizer != "any" or self.inner.name == self.name:
            raise ValueError(f"inner: {self.inner.name} replaces the optimizer or has levels itself; write another")
        if self.parted and self.outer.needs_whole:
            raise ValueError(f"outer: {self.outer.name}: {self.outer.needs_whole}, and outside it sees parts; "
                             "write another")  # fmt: skip
        if self.outer.name == self.name:
            raise ValueError("outer: two levels are all there is; write a strategy of one level")

    @property
    def parted(self) -> bool:
        """The members of a group stay equal, so that each takes a part across."""
        return self.inner.gradient_only

    def needs_optimizer(self) -> str:
        return self.outer.optimizer

    def check(self, n: int) -> None:
        if n % self.size:
            raise ValueError(f"workers: {n} do not divide into groups of {self.size}; write a multiple")
        self.inner.check(self.size)
        self.outer.check(n // self.size)

    def period(self, n: int) -> int:
        return lcm(self.inner.period(self.size), self.outer.period(n // self.size))

    def factors_matrices(self) -> bool:
        return self.inner.factors_matrices() or self.outer.factors_matrices()

    def waits(self) -> bool:
        return self.outer.waits()

    def cycles(self, n: int) -> tuple[WorkerCycle, ...] | None:
        """Of the groups: inside, all wait for all."""
        return self.outer.cycles(n // self.size)

    def settles(self) -> int:
        return max(self.inner.settles(), self.outer.settles())

    def init(self, c: Communicator, x: Array) -> State:
        inside, across = self._split(c)
        state: State = {}
        _put(state, "inner", self.inner.init(inside, x))
        _put(state, "outer", self.outer.init(across, self._taken(inside, x)))
        return state

    def _taken(self, inside: Communicator, x: Array) -> Array:
        """What each member takes across."""
        return inside.own_part(inside.parts(x)) if self.parted else x

    def _rate(self, inside: Communicator, lr: Rate) -> Rate:
        """Of the numbers it takes; 1 behind the end, where nothing moves but some divide by it."""
        if isinstance(lr, float) or not self.parted:
            return lr
        whole = lr.expand(inside.m, -1)
        return self._taken(inside, whole) + (1.0 - self._taken(inside, whole * 0.0 + 1.0))

    def _home(self, inside: Communicator, part: Array, d: int) -> Array:
        return inside.collect(part, d) if self.parted else part

    def _split(self, c: Communicator) -> tuple[Communicator, Communicator]:
        inside, across = c.split(self.size)
        inside.step = across.step = c.step
        return inside, across

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:
        inside, across = self._split(c)
        held = _of(state, "inner")
        g = self.inner.on_grad(inside, held, x, g, lr, t)
        _put(state, "inner", held)
        if type(self.outer).on_grad is Strategy.on_grad:
            return g
        held = _of(state, "outer")
        part = self.outer.on_grad(
            across, held, self._taken(inside, x), self._taken(inside, g), self._rate(inside, lr), t
        )
        _put(state, "outer", held)
        return self._home(inside, part, g.shape[1])

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:
        inside, across = self._split(c)
        if type(self.inner).on_param is not Strategy.on_param:
            held = _of(state, "inner")
            x1 = self.inner.on_param(inside, held, x0, x1, lr, t)
            _put(state, "inner", held)
        if type(self.outer).on_param is Strategy.on_param:
            return x1
        held, before = _of(state, "outer"), len(c.trace)
        own = self._taken(inside, x1)
        part = self.outer.on_param(across, held, self._taken(inside, x0), own, self._rate(inside, lr), t)
        _put(state, "outer", held)
        # nothing was exchanged and nothing moved: the parts are still equal inside
        return x1 if part is own and len(c.trace) == before else self._home(inside, part, x1.shape[1])

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (
            cls(size=2), cls(outer=DiLoCo(every=2), size=2), cls(inner=MemSGD(), outer=PSGD(), size=2),
            cls(outer=MemSGD(), size=2), cls(inner=LocalSGD(every=2), outer=DiLoCo(every=4), size=2),
            cls(inner=DSGD(topology("complete")), outer=PSGD(), size=2), cls(outer=OneBitAdam(freeze=2), size=2),
        )  # fmt: skip


def _of(state: State, name: str) -> State:
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def _put(state: State, name: str, held: State) -> None:
    state.update({f"{name}.{key}": value for key, value in held.items()})


STRATEGY = Hierarchical
