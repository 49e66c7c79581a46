"""One scan over the frames of a space: in this process, or dealt out to several."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from shardwise.case import Case
from shardwise.estimate.closed_form import estimate
from shardwise.estimate.synced import SyncChoice, allowed_with
from shardwise.estimate.time import work_alone
from shardwise.plan.bounded import BoundedScan, plain
from shardwise.plan.every import BATCH, every
from shardwise.plan.keep import Keep, PricedPolicies
from shardwise.plan.space import Space
from shardwise.spec.policy import Ints, Policies

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]
FRAMES = 2048
"""handed to a process at a time"""
PER_FRAME = 40
"""estimates a bounded scan makes for each frame, about"""
FEW = 4_000_000
"""with fewer estimates than that, starting other processes costs more than they bring"""


@dataclass(frozen=True)
class Pricing:
    """Prices policies of a case, batch by batch."""

    case: Case
    sync: SyncChoice | None = None
    """in place of the mean gradient"""

    def price(self, policies: Policies) -> PricedPolicies:
        if not len(policies):
            return PricedPolicies.none()
        parts = [
            estimate(self.case, policies.take(slice(i, i + BATCH)), sync=self.sync)
            for i in range(0, len(policies), BATCH)
        ]
        steps, peaks = (np.concatenate([p.times.step_s for p in parts]), np.concatenate([p.memory.peak for p in parts]))
        if self.sync is not None:
            # what the strategy cannot run with never fits
            wrong = ~allowed_with(self.sync, self.case.model, self.case.job, policies)
            steps[wrong], peaks[wrong] = np.inf, np.inf
        return PricedPolicies(policies, steps, peaks)

    def floors(self, frames: Policies) -> Floats:
        """What each frame takes at least, whatever its settings."""
        rows = plain(frames)
        parts = [rows.take(slice(i, i + BATCH)) for i in range(0, len(rows), BATCH)]
        floors = [work_alone(estimate(self.case, part).times) for part in parts]
        if self.sync is not None and not self.sync.strategy.waits():
            # jitter of nodes that wait for each other is no part of it
            floors = [floor / (1.0 + self._jitter) for floor in floors]
        return np.concatenate([np.empty(0), *floors])

    @property
    def _jitter(self) -> float:
        """Share of a step that nodes lose waiting, at most."""
        cluster = self.case.cluster
        nodes = max(cluster.gpus / cluster.node_size, 1.0)
        return self.case.stack.network.jitter * float(np.log2(nodes))


@dataclass(frozen=True)
class Scanning:
    pricing: Pricing
    space: Space
    bounded: bool
    processes: int

    @cached_property
    def floors(self) -> Floats:
        """What each frame takes at least."""
        return self.pricing.floors(self.space.frames) if self.bounded else np.zeros(len(self.space.frames))

    def run(self, keep: Keep, progress: Progress | None) -> bool:
        """Whether it came to the end; Ctrl-C leaves in `keep` what was seen."""
        try:
            # the most promising first, so that the bounds tell early
            floors = self.floors
            order = np.argsort(floors, kind="stable")
            if self.processes > 1 and self._estimates > FEW:
                self._dealt_out(keep, order, progress)
            else:
                for done, part in _parts(order):
                    look(self.pricing, self.space, keep, part, floors[part], bounded=self.bounded)
                    if progress is not None:
                        progress(done, len(order))
        except KeyboardInterrupt:
            return False
        return True

    @property
    def _estimates(self) -> int:
        return PER_FRAME * len(self.space.frames) if self.bounded else self.space.points

    def _dealt_out(self, keep: Keep, order: Ints, progress: Progress | None) -> None:
        """Each task begins with what is known when it is handed out, so that bounds found by one serve all."""
        waiting, total, done = list(_parts(order))[::-1], len(order), 0
        running: dict[Future[Keep], int] = {}
        with _pool(self.pricing, self.space, self.processes) as pool:
            while waiting or running:
                while waiting and len(running) < 2 * self.processes:
                    _, part = waiting.pop()
                    task = pool.submit(_task, keep.bounds(), part, self.floors[part], self.bounded)
                    running[task] = len(part)
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for task in finished:
                    keep.merge(task.result())
                    done += running.pop(task)
                    if progress is not None:
                        progress(done, total)


def look(pricing: Pricing, space: Space, keep: Keep, frames: Ints, floors: Floats, *, bounded: bool) -> None:
    if bounded:
        BoundedScan(space, pricing.price, keep).look(frames, floors)
        return
    for batch in every(space, frames):
        keep.add(pricing.price(batch))


def _parts(order: Ints) -> Iterator[tuple[int, Ints]]:
    for begin in range(0, len(order), FRAMES):
        part = order[begin : begin + FRAMES]
        yield begin + len(part), part


@contextmanager
def _pool(pricing: Pricing, space: Space, processes: int) -> Iterator[ProcessPoolExecutor]:
    # a fresh interpreter each: a progress bar's thread must not be copied in the middle of something
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (pricing, space))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


_GIVEN: list[tuple[Pricing, Space]] = []
"""of a worker process: set once when it begins, so that tasks carry frame numbers only"""


def _begin(pricing: Pricing, space: Space) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    _GIVEN[:] = [(pricing, space)]


def _task(keep: Keep, frames: Ints, floors: Floats, bounded: bool) -> Keep:
    pricing, space = _GIVEN[0]
    look(pricing, space, keep, frames, floors, bounded=bounded)
    return keep
