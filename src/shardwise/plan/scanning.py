"""One scan over the frames of a space, in this process; a long one is dealt out to several."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.plan.bounded import FIRST_BLOCK, BoundedScan, plain
from shardwise.plan.every import BATCH, every
from shardwise.plan.keep import NEAR, Keep, PricedPolicies
from shardwise.plan.least import least_bytes
from shardwise.plan.space import FULL, NONE, Space
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.policy import OFFLOAD, Policies
from shardwise.spec.software.limits import runs
from shardwise.step.estimate.closed_form import estimate, floor_times, memory_alone
from shardwise.step.estimate.memory import Memory
from shardwise.step.estimate.stragglers import waiting_share
from shardwise.step.estimate.synced import SyncChoice, allowed_with
from shardwise.step.estimate.time import work_alone
from shardwise.work.case import Case

Progress = Callable[[int, int], None]
Look = Callable[[Ints, Floats], None]
"""at frames of these numbers, which take at least so long, without recompute and with all of it"""
FRAMES = 2048
"""handed to a process at a time"""
NEARLY = 0.8
SMALLEST = 64
"""frames looked at together where only the smallest is looked for"""
PER_FRAME = 40
"""estimates a bounded scan makes for each frame, about"""
FEW = 4_000_000
"""with fewer estimates than that, starting other processes costs more than they bring"""

MOST_STATE_BYTES = 16.0
"""that any optimizer keeps for a parameter"""


@dataclass(frozen=True)
class Pricing:
    """Prices policies of a case, batch by batch."""

    case: Case
    sync: SyncChoice | None = None
    """in place of the mean gradient"""
    limits: tuple[str, ...] = ()
    """of the program: a policy that it cannot run is priced as one that never fits"""

    def any_host(self, space: Space) -> bool:
        """Whether the host surely holds whatever is offloaded: the optimizer of the whole model, for each GPU."""
        optimizer = set(space.settings.offload) <= {OFFLOAD.index("none"), OFFLOAD.index("optimizer")}
        room = self.case.cluster.host_bytes_per_gpu
        return optimizer and MOST_STATE_BYTES * parameters(self.case.model) <= room

    def price(self, policies: Policies) -> PricedPolicies:
        if not len(policies):
            return PricedPolicies.none()
        parts = [estimate(self.case, part, sync=self.sync) for part in _batches(policies)]
        steps = np.concatenate([p.times.step_s for p in parts])
        peaks = self._peaks(policies, [p.memory for p in parts])
        steps[~self._allowed(policies)] = np.inf
        peaks[~runs(self.limits, policies)] = np.inf
        return PricedPolicies(policies, steps, peaks)

    def peaks(self, policies: Policies) -> Floats:
        """The same bytes without the seconds, whether the program runs the policy or not."""
        parts = [memory_alone(self.case, part, self.sync) for part in _batches(policies)]
        return self._peaks(policies, parts) if parts else np.empty(0)

    def _peaks(self, policies: Policies, parts: list[Memory]) -> Floats:
        """What the host cannot hold, or the strategy cannot run with, never fits."""
        peaks = np.concatenate([p.peak for p in parts])
        peaks[np.concatenate([p.host_bytes for p in parts]) > self.case.cluster.host_bytes_per_gpu] = np.inf
        peaks[~self._allowed(policies)] = np.inf
        return peaks

    def _allowed(self, policies: Policies) -> NDArray[np.bool_]:
        if self.sync is None:
            return np.ones(len(policies), dtype=np.bool_)
        return allowed_with(self.sync, self.case.model, self.case.job, policies)

    def floors(self, frames: Policies, recompute: int = NONE) -> Floats:
        """What each frame takes at least with this recompute; with none: whatever its settings."""
        floors = [work_alone(floor_times(self.case, part)) for part in _batches(plain(frames, recompute))]
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
        """What each frame takes at least, whatever its settings, and where it makes all activations again."""
        if not self.bounded:
            return np.zeros((len(self.space.frames), 2))
        least = self.pricing.floors(self.space.frames)
        if FULL not in self.space.settings.recompute:
            return np.stack([least, np.full_like(least, np.inf)], axis=1)
        return np.stack([least, self.pricing.floors(self.space.frames, FULL)], axis=1)

    @cached_property
    def least(self) -> Floats:
        """Bytes each frame needs at least."""
        return least_bytes(self.space, self.pricing.peaks, any_host=self.pricing.any_host(self.space))

    def run(self, keep: Keep, progress: Progress | None) -> bool:
        """Whether it came to the end; Ctrl-C leaves in `keep` what was seen."""
        try:
            self._look_through(keep, progress)
        except KeyboardInterrupt:
            return False
        return True

    def _look_through(self, keep: Keep, progress: Progress | None) -> None:
        """The most promising frames first, so that the bounds tell early. Where nothing of them fits, memory alone
        tells which of the others can."""
        look = looking(self.pricing, self.space, keep, bounded=self.bounded)
        rest, count = np.arange(len(self.space.frames)), len(self.space.frames)

        def told(left: int) -> None:
            if progress is not None:
                progress(count - left, count)

        memory_first = not self.bounded or "least" in vars(self) or self._nearly_full(keep)
        if memory_first:
            rest = self._that_may_fit(keep, rest, look)
        if len(rest):
            rest = rest[np.argsort(self.floors[rest, 0], kind="stable")]
        if not memory_first:
            first, rest = rest[: min(FIRST_BLOCK, FRAMES)], rest[min(FIRST_BLOCK, FRAMES) :]
            look(first, self.floors[first])
            told(len(rest))
            if not keep.kinds_too:
                rest = rest[self.floors[rest, 0] <= keep.slowest_kept]
            if len(rest) and not keep.fitting:
                rest = self._that_may_fit(keep, rest, look)
        if self.processes > 1 and self._estimates(len(rest)) > FEW:
            from shardwise.plan.dealt_out import dealt_out  # processes and sockets take long to import

            dealt_out(self, keep, rest, told)
            return
        for left, part in parts_of(rest, FRAMES):
            look(part, self.floors[part])
            told(left)

    def _nearly_full(self, keep: Keep) -> bool:
        """Whether weights and gradients alone, a part on each GPU, come near the limit: then hardly anything fits.
        A guess; it says what is looked at first, and nothing of what is found."""
        model, job, cluster = self.pricing.case.model, self.pricing.case.job, self.pricing.case.cluster
        held = parameters(model) * (job.precision.param_bytes + job.precision.grad_bytes) / cluster.gpus
        return held > NEARLY * keep.limit

    def _that_may_fit(self, keep: Keep, frames: Ints, look: Look) -> Ints:
        """Those of the frames that are still to be looked at; where none fits the smallest are looked at here."""
        least = self.least[frames]
        inside = least <= max((keep.limit, *keep.other_limits))
        if (least <= keep.limit).any():
            # of a kind that does not fit the smallest is told
            return frames if keep.kinds_too else frames[inside]
        by_size = frames[np.argsort(least, kind="stable")]
        for _, part in parts_of(by_size[np.isfinite(self.least[by_size])], SMALLEST):
            if len(keep.smallest) and self.least[part[0]] > keep.smallest.peaks[0] * NEAR:
                break
            look(part, np.zeros((len(part), 2)))
        return frames[inside]

    def _estimates(self, frames: int) -> float:
        """About as many are made for so many frames."""
        return PER_FRAME * frames if self.bounded else self.space.points * frames / max(len(self.space.frames), 1)


def looking(pricing: Pricing, space: Space, keep: Keep, *, bounded: bool) -> Look:
    if bounded:
        return BoundedScan(space, pricing.price, pricing.peaks, keep, any_host=pricing.any_host(space)).look

    def at_every(frames: Ints, _: Floats) -> None:
        for batch in every(space, frames):
            keep.add(pricing.price(batch))

    return at_every


def parts_of(order: Ints, size: int) -> Iterator[tuple[int, Ints]]:
    """(how many are left after it, each part)."""
    for begin in range(0, len(order), size):
        part = order[begin : begin + size]
        yield len(order) - begin - len(part), part


def _batches(policies: Policies) -> Iterator[Policies]:
    for begin in range(0, len(policies), BATCH):
        yield policies.take(slice(begin, begin + BATCH))
