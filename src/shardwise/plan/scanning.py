"""One scan over the frames of a space, in this process; a long one is dealt out to several."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwise.case import Case
from shardwise.estimate.closed_form import estimate, floor_times
from shardwise.estimate.stragglers import waiting_share
from shardwise.estimate.synced import SyncChoice, allowed_with
from shardwise.estimate.time import work_alone
from shardwise.plan.bounded import BoundedScan, plain
from shardwise.plan.every import BATCH, every
from shardwise.plan.keep import Keep, PricedPolicies
from shardwise.plan.space import Space
from shardwise.spec.policy import Ints, Policies

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]
Look = Callable[[Ints, Floats], None]
"""at frames of these numbers, which take at least so long"""
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
    host_bytes: float | None = None
    """of the host's memory that one GPU may fill with what is offloaded; None: as much as it likes"""

    def price(self, policies: Policies) -> PricedPolicies:
        if not len(policies):
            return PricedPolicies.none()
        parts = [
            estimate(self.case, policies.take(slice(i, i + BATCH)), sync=self.sync)
            for i in range(0, len(policies), BATCH)
        ]
        steps, peaks = (np.concatenate([p.times.step_s for p in parts]), np.concatenate([p.memory.peak for p in parts]))
        if self.host_bytes is not None:
            # what the host cannot hold never fits
            peaks[np.concatenate([p.memory.host_bytes for p in parts]) > self.host_bytes] = np.inf
        if self.sync is not None:
            # what the strategy cannot run with never fits
            wrong = ~allowed_with(self.sync, self.case.model, self.case.job, policies)
            steps[wrong], peaks[wrong] = np.inf, np.inf
        return PricedPolicies(policies, steps, peaks)

    def floors(self, frames: Policies) -> Floats:
        """What each frame takes at least, whatever its settings."""
        rows = plain(frames)
        parts = [rows.take(slice(i, i + BATCH)) for i in range(0, len(rows), BATCH)]
        floors = [work_alone(floor_times(self.case, part)) for part in parts]
        if self.sync is not None and not self.sync.strategy.waits():
            # what GPUs lose that wait for each other is no part of it
            floors = [floor / (1.0 + float(waiting_share(self.case.cluster.gpus, self.case.stack))) for floor in floors]
        return np.concatenate([np.empty(0), *floors])


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
                from shardwise.plan.dealt_out import dealt_out  # processes and sockets take long to import

                dealt_out(self, keep, order, progress)
            else:
                look = looking(self.pricing, self.space, keep, bounded=self.bounded)
                for done, part in parts_of(order):
                    look(part, floors[part])
                    if progress is not None:
                        progress(done, len(order))
        except KeyboardInterrupt:
            return False
        return True

    @property
    def _estimates(self) -> int:
        return PER_FRAME * len(self.space.frames) if self.bounded else self.space.points


def looking(pricing: Pricing, space: Space, keep: Keep, *, bounded: bool) -> Look:
    if bounded:
        return BoundedScan(space, pricing.price, keep, any_host=pricing.host_bytes is None).look

    def at_every(frames: Ints, _: Floats) -> None:
        for batch in every(space, frames):
            keep.add(pricing.price(batch))

    return at_every


def parts_of(order: Ints) -> Iterator[tuple[int, Ints]]:
    for begin in range(0, len(order), FRAMES):
        part = order[begin : begin + FRAMES]
        yield begin + len(part), part
