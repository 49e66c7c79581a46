"""Hierarchical: one strategy inside groups of neighbours (a node), another across them.

Inside, the gradients become equal; across, every member of a group works on its own part of the row with its
counterparts, and the parts are gathered inside. So each byte leaves a node once, as in a two-level all-reduce.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.sync._array import Array
from shardwise.sync._comm import Comm
from shardwise.sync._strategy import Rate, State, Strategy, need_count
from shardwise.sync.diloco import DiLoCo
from shardwise.sync.dsgd import DSGD
from shardwise.sync.mem_sgd import MemSGD
from shardwise.sync.psgd import PSGD


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
        if not self.inner.gradient_only or self.inner.optimizer != "any":
            raise ValueError(
                f"inner: {self.inner.name} does not leave the workers of a node equal; write one that only averages "
                "gradients, such as psgd, mem_sgd or power_sgd"
            )
        if self.outer.name in ("power_sgd", "hierarchical"):
            raise ValueError(f"outer: {self.outer.name} needs whole matrices, and outside it sees parts; write another")
        if self.outer.optimizer != "any":
            raise ValueError(f"outer: {self.outer.name} replaces the optimizer; write one that works with any")

    def check(self, n: int) -> None:
        if n % self.size:
            raise ValueError(f"workers: {n} do not divide into groups of {self.size}; write a multiple")
        self.inner.check(self.size)
        self.outer.check(n // self.size)

    def period(self, n: int) -> int:
        return self.outer.period(n // self.size)

    def settles(self) -> int:
        return max(self.inner.settles(), self.outer.settles())

    def init(self, c: Comm, x: Array) -> State:
        inside, across = self._split(c)
        state: State = {}
        _put(state, "inner", self.inner.init(inside, x))
        _put(state, "outer", self.outer.init(across, _own(inside, x)))
        return state

    def _split(self, c: Comm) -> tuple[Comm, Comm]:
        inside, across = c.split(self.size)
        inside.step = across.step = c.step
        return inside, across

    def on_grad(self, c: Comm, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:
        inside, across = self._split(c)
        held = _of(state, "inner")
        g = self.inner.on_grad(inside, held, x, g, lr, t)
        _put(state, "inner", held)
        if type(self.outer).on_grad is Strategy.on_grad:
            return g
        held = _of(state, "outer")
        part = self.outer.on_grad(across, held, _own(inside, x), _own(inside, g), _part_rate(lr), t)
        _put(state, "outer", held)
        return inside.collect(part, g.shape[1])

    def on_param(self, c: Comm, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:
        if type(self.outer).on_param is Strategy.on_param:
            return x1
        inside, across = self._split(c)
        held, before = _of(state, "outer"), len(c.trace)
        own = _own(inside, x1)
        part = self.outer.on_param(across, held, _own(inside, x0), own, _part_rate(lr), t)
        _put(state, "outer", held)
        # nothing was exchanged and nothing moved: the parts are still equal inside
        return x1 if part is own and len(c.trace) == before else inside.collect(part, x1.shape[1])

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (
            cls(size=2), cls(outer=DiLoCo(every=2), size=2), cls(inner=MemSGD(), outer=PSGD(), size=2),
            cls(outer=MemSGD(), size=2),
        )  # fmt: skip


def _own(inside: Comm, x: Array) -> Array:
    return inside.own_part(inside.parts(x))


def _part_rate(lr: Rate) -> Rate:
    if not isinstance(lr, float):
        raise ValueError("lr: hierarchical needs one learning rate for all parameters; write one parameter group")
    return lr


def _of(state: State, name: str) -> State:
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def _put(state: State, name: str, held: State) -> None:
    state.update({f"{name}.{key}": value for key, value in held.items()})


STRATEGY = Hierarchical
