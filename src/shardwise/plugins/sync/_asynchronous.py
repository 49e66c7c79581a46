"""Workers that wait for nobody, in time: compute, hand the result to the server, fetch what it then holds, go on.

A worker's cycle is its own compute and its own two messages. The server is shared: each direction of its link carries
one message after the other, so where the workers deliver faster than it takes, every cycle grows by the same wait. The
closed form finds that wait; `play` is the same in events, one worker at a time, and a test holds the two together.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwise.plugins.sync._events import SERVER

Numbers = NDArray[np.float64]
HALVINGS = 60
"""of the interval the wait lies in: to the last bit"""
QUANTILES = 4096


@dataclass(frozen=True)
class WorkerCycle:
    """What a worker does between two deliveries."""

    ticks: int
    """compute, in steps of a worker at full speed"""
    steps: int
    """batches it has worked through by then"""


def step_seconds(cycles: Sequence[WorkerCycle], compute_s: Any, message_s: Any) -> Numbers:
    """Until all workers together have worked through as many batches as there are workers.

    `message_s`: one message to the server or back. The server's own worker waits for its turn, but sends nothing.
    """
    compute, message = np.broadcast_arrays(np.asarray(compute_s, np.float64), np.asarray(message_s, np.float64))
    wait = _wait(cycles, compute, message)
    done = sum(many * each.steps / _length(each, away, compute, message, wait) for (each, away), many in _alike(cycles))
    return np.asarray(len(cycles) / done)


def compute_seconds(cycles: Sequence[WorkerCycle], compute_s: Any) -> Numbers:
    """The same where messages take no time: workers of unequal speed."""
    return step_seconds(cycles, compute_s, 0.0)


def slowest_ticks(cycles: Sequence[WorkerCycle]) -> float:
    """Steps at full speed in which the slowest worker does one: what those who wait for each other wait for."""
    return max(each.ticks / each.steps for each in cycles)


def _alike(cycles: Sequence[WorkerCycle]) -> list[tuple[tuple[WorkerCycle, bool], int]]:
    """((cycle, whether its messages travel), how many workers have it)."""
    return list(Counter((each, place != SERVER) for place, each in enumerate(cycles)).items())


def _length(each: WorkerCycle, away: bool, compute: Numbers, message: Numbers, wait: Numbers) -> Numbers:
    return each.ticks * compute + (2.0 * message if away else 0.0) + wait


def _wait(cycles: Sequence[WorkerCycle], compute: Numbers, message: Numbers) -> Numbers:
    """In the queue at the server: none while one direction of its link has time left, else as long as fills it."""
    kinds = [(each, many) for (each, away), many in _alike(cycles) if away]

    def full(wait: Numbers) -> NDArray[np.bool_]:
        rate = sum(many / np.maximum(_length(each, True, compute, message, wait), 1e-30) for each, many in kinds)
        return np.asarray(message * rate > 1.0)

    low, high = np.zeros_like(message), len(cycles) * message
    crowded = full(low)
    for _ in range(HALVINGS if crowded.any() else 0):
        middle = 0.5 * (low + high)
        above = full(middle)
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(crowded, high, 0.0)


def slowest_factor(workers: int, jitter: float) -> float:
    """The mean of the slowest of so many, each step's time lognormal around 1 with this standard deviation."""
    if workers < 2 or not jitter:
        return 1.0
    spread = float(np.sqrt(np.log1p(jitter**2)))
    normal = NormalDist(-(spread**2) / 2, spread)
    # the largest of n lies below what one of them does with a probability of p ^ (1 / n)
    shares = ((np.arange(QUANTILES) + 0.5) / QUANTILES) ** (1.0 / workers)
    return float(np.mean(np.exp([normal.inv_cdf(float(share)) for share in shares])))


@dataclass(frozen=True)
class AsyncRun:
    step_s: float
    """until as many batches are worked through as there are workers; of the second half of the run"""
    server_busy: float
    """share of the time one direction of its link is busy"""


def play(
    cycles: Sequence[WorkerCycle], compute_s: float, message_s: float, *, jitter: float = 0.0, deliveries: int = 200,
    seed: int = 0,
) -> AsyncRun:  # fmt: skip
    """n workers and a server, delivery by delivery; `deliveries`: of a worker, on average."""
    draw, spread = np.random.default_rng(seed), float(np.sqrt(np.log1p(jitter**2)))

    def computed(worker: int) -> float:
        factor = draw.lognormal(-(spread**2) / 2, spread) if jitter else 1.0
        return cycles[worker].ticks * compute_s * float(factor)

    ready = [(computed(worker), worker) for worker in range(len(cycles))]
    heapq.heapify(ready)
    taken = sent = 0.0  # until when each direction of the server's link is busy
    ends: list[tuple[float, int, bool]] = []
    for _ in range(deliveries * len(cycles)):
        now, worker = heapq.heappop(ready)
        away = message_s if worker != SERVER else 0.0
        taken = max(now, taken) + away
        if away:
            sent = max(taken, sent) + away
        now = sent if away else taken
        ends.append((now, cycles[worker].steps, worker != SERVER))
        heapq.heappush(ready, (now + computed(worker), worker))
    ends.sort()
    half, last = ends[len(ends) // 2][0], ends[-1][0]
    later = [entry for entry in ends if entry[0] > half]
    span = last - half
    return AsyncRun(
        step_s=span * len(cycles) / sum(steps for _, steps, _ in later),
        server_busy=message_s * sum(away for _, _, away in later) / span,
    )
