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

from shardwise.calibrate.overlay import stack_with
from shardwise.calibrate.profile import Profile
from shardwise.cost.network import Network
from shardwise.estimate.closed_form import Estimate, estimate, network_for
from shardwise.estimate.synced import Choice, allowed_with
from shardwise.estimate.time import work_alone
from shardwise.plan.bounded import Bounded, plain
from shardwise.plan.every import BATCH, every
from shardwise.plan.keep import Keep, Seen
from shardwise.plan.space import Space
from shardwise.software import Stack
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
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
class Case:
    model: Model
    cluster: Cluster
    job: Job
    stack: Stack
    profile: Profile | None
    sync: Choice | None = None
    """in place of the mean gradient"""

    @cached_property
    def _network(self) -> Network:
        return network_for(self.cluster, stack_with(self.stack, self.profile), self.profile)

    def estimate(self, policies: Policies, sync: Choice | None = None) -> Estimate:
        return estimate(
            self.model, self.cluster, self.job, policies, self.stack, profile=self.profile, network=self._network,
            sync=sync,
        )  # fmt: skip

    def price(self, policies: Policies) -> Seen:
        if not len(policies):
            return Seen.none()
        parts = [self.estimate(policies.take(slice(i, i + BATCH)), self.sync) for i in range(0, len(policies), BATCH)]
        steps, peaks = (np.concatenate([p.times.step_s for p in parts]), np.concatenate([p.memory.peak for p in parts]))
        if self.sync is not None:
            # what the strategy cannot run with never fits
            wrong = ~allowed_with(self.sync, self.model, self.job, policies)
            steps[wrong], peaks[wrong] = np.inf, np.inf
        return Seen(policies, steps, peaks)

    def floors(self, frames: Policies) -> Floats:
        """What each frame takes at least, whatever its settings."""
        rows = plain(frames)
        parts = [rows.take(slice(i, i + BATCH)) for i in range(0, len(rows), BATCH)]
        return np.concatenate([np.empty(0), *(work_alone(self.estimate(part).times) for part in parts)])


@dataclass(frozen=True)
class Scanning:
    case: Case
    space: Space
    keep: Keep
    bounded: bool
    processes: int

    def run(self, progress: Progress | None) -> bool:
        """Whether it came to the end; Ctrl-C leaves in `keep` what was seen."""
        try:
            # the most promising first, so that the bounds tell early
            floors = self.case.floors(self.space.frames) if self.bounded else np.zeros(len(self.space.frames))
            order = np.argsort(floors, kind="stable")
            if self.processes > 1 and self._estimates > FEW:
                self._dealt_out(order, floors, progress)
            else:
                for done, part in _parts(order):
                    look(self.case, self.space, self.keep, part, floors[part], bounded=self.bounded)
                    if progress is not None:
                        progress(done, len(order))
        except KeyboardInterrupt:
            return False
        return True

    @property
    def _estimates(self) -> int:
        return PER_FRAME * len(self.space.frames) if self.bounded else self.space.points

    def _dealt_out(self, order: Ints, floors: Floats, progress: Progress | None) -> None:
        """Each task begins with what is known when it is handed out, so that bounds found by one serve all."""
        waiting, total, done = list(_parts(order))[::-1], len(order), 0
        running: dict[Future[Keep], int] = {}
        with _pool(self.case, self.space, self.processes) as pool:
            while waiting or running:
                while waiting and len(running) < 2 * self.processes:
                    _, part = waiting.pop()
                    task = pool.submit(_task, self.keep.bounds(), part, floors[part], self.bounded)
                    running[task] = len(part)
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for task in finished:
                    self.keep.merge(task.result())
                    done += running.pop(task)
                    if progress is not None:
                        progress(done, total)


def look(case: Case, space: Space, keep: Keep, frames: Ints, floors: Floats, *, bounded: bool) -> None:
    if bounded:
        Bounded(space, case.price, keep).look(frames, floors)
        return
    for batch in every(space, frames):
        keep.add(case.price(batch))


def _parts(order: Ints) -> Iterator[tuple[int, Ints]]:
    for begin in range(0, len(order), FRAMES):
        part = order[begin : begin + FRAMES]
        yield begin + len(part), part


@contextmanager
def _pool(case: Case, space: Space, processes: int) -> Iterator[ProcessPoolExecutor]:
    # a fresh interpreter each: a progress bar's thread must not be copied in the middle of something
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (case, space))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


_GIVEN: list[tuple[Case, Space]] = []
"""of a worker process: set once when it begins, so that tasks carry frame numbers only"""


def _begin(case: Case, space: Space) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    _GIVEN[:] = [(case, space)]


def _task(keep: Keep, frames: Ints, floors: Floats, bounded: bool) -> Keep:
    case, space = _GIVEN[0]
    look(case, space, keep, frames, floors, bounded=bounded)
    return keep
