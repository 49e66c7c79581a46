"""What a strategy costs: its events on ghosts, priced by a network. No formula of its own."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from shardwise.collectives import collective
from shardwise.sync._array import Ghost
from shardwise.sync._comm import Ready
from shardwise.sync._events import FP32, Event
from shardwise.sync._ghost import GhostComm
from shardwise.sync._layout import Layout
from shardwise.sync._strategy import Strategy

_NAMED = {"ring": "ring", "pairwise": "pairwise"}
"""algorithms every network knows for groups of any shape; others are left to its choice"""
_PLAIN = {"all_to_all": "pairwise", "send": "send"}
"""what a flat network uses unasked where that is not the ring"""


class PricesMessages(Protocol):
    """`cost.network.Network` is one; `Flat` another."""

    def seconds(self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *,
                algorithm: str | None = None) -> Any: ...  # fmt: skip


@dataclass(frozen=True)
class Flat:
    """Every pair of workers joined by the same link: latency + bytes / bandwidth per message."""

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0.0 and self.bytes_per_s > 0.0):
            raise ValueError(f"network: latency {self.latency_s:g} s, {self.bytes_per_s:g} bytes/s; both positive")

    def seconds(self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *,  # noqa: ARG002
                algorithm: str | None = None) -> float:  # fmt: skip
        ranks = int(np.asarray(size))
        if ranks <= 1:
            return 0.0
        found = collective(algorithm or _PLAIN.get(op, "ring"))
        sent = float(np.max(found.sent(op, ranks, 1))) * float(np.asarray(bytes_))
        return found.rounds(op, ranks, 1) * self.latency_s + sent / self.bytes_per_s


@dataclass(frozen=True)
class Cost:
    strategy: str
    workers: int
    parameters: int
    steps: int
    """of the period the means are taken over"""
    sent_bytes: float
    """by the worker that sends the most, per step"""
    total_bytes: float
    """by all workers, per step"""
    messages: float
    """exchanges per step"""
    seconds: float
    """of communication per step, nothing hidden"""
    peak_s: float
    """of the longest step"""
    state_bytes: int
    """memory a worker holds beyond parameters, gradients and the optimizer's state"""
    events: tuple[Event, ...]
    """of one period"""


def seconds_of(event: Event, network: PricesMessages) -> float:
    """Neighbours and servers send one message after the other; a collective is the network's."""
    if event.size <= 1:
        return 0.0
    if event.op in ("mix", "push", "pull") or event.algorithm == "server":
        message = float(network.seconds("send", event.bytes, event.size, event.stride))
        busiest = max(event.sent) / event.bytes
        if event.op == "push":
            busiest = float(sum(event.sent)) / event.bytes  # the server takes them in one after the other
        return message * (2 * busiest if event.algorithm == "server" and event.op == "all_reduce" else busiest)
    if event.algorithm == "sharded":
        halves = [network.seconds(op, event.bytes, event.size, event.stride) for op in ("all_to_all", "all_gather")]
        return float(sum(map(float, halves)))
    # a placed network has trees only over nodes, so it is left to choose
    name = "tree" if event.algorithm == "tree" and isinstance(network, Flat) else _NAMED.get(event.algorithm)
    return float(network.seconds(event.op, event.bytes, event.size, event.stride, algorithm=name))


@dataclass(frozen=True)
class Trace:
    setup: list[Event]
    """before the first step"""
    steps: list[list[Event]]
    state_bytes: int


def trace_of(strategy: Strategy, layout: Layout, workers: int, steps: int) -> Trace:
    """What the strategy sends, from ghosts."""
    strategy.check(workers)
    comm = GhostComm(layout, workers)
    x: Any = Ghost(1, layout.d)
    state = strategy.init(comm, x)
    setup, found = list(comm.trace), []
    for step in range(steps):
        comm.step, comm.trace[:] = step, []
        direction = strategy.on_grad(comm, state, x, x, 1.0, step)
        strategy.on_param(comm, state, x, direction, 1.0, step)
        found.append(list(comm.trace))
    return Trace(setup, found, _held_bytes(state))


def _held_bytes(state: Any) -> int:
    if isinstance(state, Ghost):
        return FP32 * state.numel()
    if isinstance(state, Ready):
        return _held_bytes(state.value)
    if isinstance(state, dict):
        return sum(map(_held_bytes, state.values()))
    return 0


def cost_of(strategy: Strategy, shapes: Layout | int, network: PricesMessages, workers: int) -> Cost:
    layout = Layout.flat(shapes) if isinstance(shapes, int) else shapes
    start, length = strategy.settles(), strategy.period(workers)
    trace = trace_of(strategy, layout, workers, start + length)
    kept = trace.steps[start:]
    prices: dict[Event, float] = {event: seconds_of(event, network) for event in {e for step in kept for e in step}}
    seconds = [sum(prices[event] for event in step) for step in kept]
    counts = Counter(event for step in kept for event in step)
    by_worker = np.zeros(workers)
    for event, times in counts.items():
        by_worker += times * np.array([event.sent_by(worker) for worker in range(workers)], dtype=np.float64)
    return Cost(
        strategy=strategy.name, workers=workers, parameters=layout.d, steps=length,
        sent_bytes=float(by_worker.max()) / length, total_bytes=float(by_worker.sum()) / length,
        messages=sum(counts.values()) / length, seconds=sum(seconds) / length, peak_s=max(seconds),
        state_bytes=trace.state_bytes, events=tuple(event for step in kept for event in step),
    )  # fmt: skip
