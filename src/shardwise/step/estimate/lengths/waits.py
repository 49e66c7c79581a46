"""Who waits for whom: the slowest data-parallel rank of a step, or of every micro-batch."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from shardwise.arrays import Floats
from shardwise.spec.policy import Policy

Piece = tuple[int, float]
"""ranks that work on it together, and their seconds"""


@dataclass(frozen=True)
class Dealt:
    """Seconds of steps, without what a step has once."""

    slowest: float
    """until the last rank is ready, on average over steps"""
    mean: float
    """in which a rank works"""

    @property
    def waiting(self) -> float:
        """What the slowest takes longer than the mean."""
        return max(self.slowest / self.mean - 1.0, 0.0)

    @staticmethod
    def over(steps: Iterable["Dealt"]) -> "Dealt":
        found = list(steps)
        return Dealt(float(np.mean([s.slowest for s in found])), float(np.mean([s.mean for s in found])))


def in_lockstep(policy: Policy) -> bool:
    """Ranks meet in every micro-batch: to gather weights (ZeRO 3) or to exchange tokens with experts. Otherwise they
    meet once a step, to reduce gradients."""
    return policy.zero == 3 or policy.ep > 1


def dealt_out(seconds: Floats, lockstep: bool) -> Dealt:
    """`seconds` of each micro-batch: (ranks, micro-batches)."""
    slowest = seconds.max(axis=0).sum() if lockstep else seconds.sum(axis=1).max()
    return Dealt(float(slowest), float(seconds.sum(axis=1).mean()))


def dealt_evenly(pieces: Iterable[Piece], ranks: int, lockstep: bool) -> Dealt:
    """The largest groups first and of each size the longest piece, so that what is still to come fills the gaps. Sizes
    divide each other: ranks of a group are ready together."""
    ordered = sorted(pieces, reverse=True)
    mean = sum(size * seconds for size, seconds in ordered) / ranks
    return Dealt(_in_waves(ordered, ranks) if lockstep else _last_ready(ordered, ranks), mean)


def _in_waves(ordered: list[Piece], ranks: int) -> float:
    """Every rank has one piece in each wave, and a wave is as long as its longest."""
    total, longest, left = 0.0, 0.0, 0
    for size, seconds in ordered:
        if left < size:
            total, longest, left = total + longest, 0.0, ranks
        longest, left = max(longest, seconds), left - size
    return total + longest


def _last_ready(ordered: list[Piece], ranks: int) -> float:
    """Each piece goes to the group that is ready first."""
    ready, now = [0.0], ranks
    for size, seconds in ordered:
        if size != now:
            ready = [load for load in ready for _ in range(now // size)]
            heapify(ready)
            now = size
        heapreplace(ready, ready[0] + seconds)
    return max(ready)
