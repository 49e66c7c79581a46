"""What a strategy costs: its events on ghosts, priced by a network. No formula of its own."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardwise.plugins.collectives import collective
from shardwise.plugins.sync._array import Ghost
from shardwise.plugins.sync._comm import Ready
from shardwise.plugins.sync._events import FP32, SyncEvent
from shardwise.plugins.sync._ghost import GhostComm, Passes
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._strategy import Strategy

_NAMED = ("ring", "pairwise", "tree")
"""algorithms a flat network is told; a placed one chooses among those its levels have"""
_PLAIN = {"all_to_all": "pairwise", "send": "send"}
"""what a flat network uses unasked where that is not the ring"""


class PricesMessages(Protocol):
    """`cost.network.Network` is one; `FlatNetwork` another."""

    def seconds(self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *,
                algorithm: str | None = None) -> Any: ...  # fmt: skip


@dataclass(frozen=True)
class FlatNetwork:
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
    """of communication per step, nothing hidden under compute; where nobody waits, of the server's busier direction"""
    message_s: float
    """where nobody waits: one worker's message to the server or back, which it does wait for; else 0"""
    peak_s: float
    """of the longest step"""
    busy: float
    """share of the steps that exchange anything"""
    state_bytes: int
    """memory a worker holds beyond parameters, gradients and the optimizer's state"""
    events: tuple[SyncEvent, ...]
    """of one period"""


def seconds_of(event: SyncEvent, network: PricesMessages) -> float:
    name = event.algorithm if event.algorithm in _NAMED and isinstance(network, FlatNetwork) else None
    return float(priced(network, event, event.bytes, event.stride, name)) if event.size > 1 else 0.0


def priced(
    network: PricesMessages, event: SyncEvent, bytes_: ArrayLike, stride: ArrayLike, algorithm: str | None
) -> Any:
    """Seconds of an event with these bytes at this stride, which may be arrays. Neighbours and servers send one message
    after the other; a collective is the network's, by this algorithm or of its choice."""
    if event.op in ("mix", "push", "pull") or event.algorithm == "server":
        # a server takes what is pushed in one after the other
        busiest = (sum(event.sent) if event.op == "push" else max(event.sent)) / event.bytes
        turns = 2 * busiest if event.algorithm == "server" and event.op == "all_reduce" else busiest
        return network.seconds("send", bytes_, event.size, stride) * turns
    if event.algorithm == "sharded":
        halves = [network.seconds(op, bytes_, event.size, stride) for op in ("all_to_all", "all_gather")]
        return halves[0] + halves[1]
    return network.seconds(event.op, bytes_, event.size, stride, algorithm=algorithm)


def message_seconds(network: PricesMessages, event: SyncEvent, bytes_: ArrayLike, stride: ArrayLike) -> Any:
    """One worker's message to a server, or back; nothing where the event is no such message."""
    return network.seconds("send", bytes_, event.size, stride) if event.op in ("push", "pull") else 0.0


@dataclass(frozen=True)
class StrategyTrace:
    setup: list[SyncEvent]
    """before the first step"""
    steps: list[list[SyncEvent]]
    passes: list[Passes]
    """of each step"""
    state_bytes: int


def trace_of(strategy: Strategy, layout: ParameterLayout, workers: int, steps: int) -> StrategyTrace:
    """What the strategy sends, from ghosts."""
    strategy.check(workers)
    comm = GhostComm(layout, workers)
    x: Any = Ghost(1, layout.d)
    state = strategy.init(comm, x)
    setup, found, passes = list(comm.trace), [], []
    for step in range(steps):
        comm.step, comm.trace[:], comm.passes = step, [], Passes()
        direction = strategy.on_grad(comm, state, x, x, 1.0, step)
        strategy.on_param(comm, state, x, direction, 1.0, step)
        found.append(list(comm.trace))
        passes.append(comm.passes)
    return StrategyTrace(setup, found, passes, _held_bytes(state))


def _held_bytes(state: Any) -> int:
    if isinstance(state, Ghost):
        return FP32 * state.numel()
    if isinstance(state, Ready):
        return _held_bytes(state.value)
    if isinstance(state, dict):
        return sum(map(_held_bytes, state.values()))
    return 0


def sent_by_worker(counts: Mapping[SyncEvent, int], workers: int) -> NDArray[np.float64]:
    """Bytes, of events that happen so many times."""
    total = np.zeros(workers)
    for event, times in counts.items():
        total += times * np.array([event.sent_by(worker) for worker in range(workers)], dtype=np.float64)
    return total


def cost_of(strategy: Strategy, shapes: ParameterLayout | int, network: PricesMessages, workers: int) -> Cost:
    layout = ParameterLayout.flat(shapes) if isinstance(shapes, int) else shapes
    start, length = strategy.settles(), strategy.period(workers)
    trace = trace_of(strategy, layout, workers, start + length)
    kept, steps = trace.steps[start:], strategy.steps_in(length, workers)
    waits = strategy.waits()
    prices: dict[SyncEvent, float] = {event: seconds_of(event, network) for event in {e for step in kept for e in step}}
    seconds = [sum(prices[event] for event in step if waits or event.op != "pull") for step in kept]
    counts = Counter(event for step in kept for event in step)
    by_worker = sent_by_worker(counts, workers)
    return Cost(
        strategy=strategy.name, workers=workers, parameters=layout.d, steps=length,
        sent_bytes=float(by_worker.max()) / steps, total_bytes=float(by_worker.sum()) / steps,
        messages=sum(counts.values()) / steps, seconds=sum(seconds) / steps, peak_s=max(seconds),
        message_s=0.0 if waits else max(float(message_seconds(network, e, e.bytes, e.stride)) for e in prices),
        busy=sum(map(bool, kept)) / length, state_bytes=trace.state_bytes,
        events=tuple(event for step in kept for event in step),
    )  # fmt: skip
