"""Geometric median (RFA): the point with the least sum of distances, by a few smoothed Weiszfeld steps."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._robust import Robust, by_worker, centre_distances, middle, weighted
from shardwise.plugins.sync._strategy import State, need_count


@dataclass(frozen=True)
class GeometricMedian(Robust):
    name: ClassVar[str] = "geometric_median"
    summary: ClassVar[str] = "the point with the least sum of distances"
    source: ClassVar[str] = "Pillutla et al. 2022, arXiv:1912.13445"
    needs_whole: ClassVar[str] = "it compares whole rows"

    iterations: int = 8
    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        need_count("iterations", self.iterations)

    def combine(self, c: Communicator, state: State, parts: Array) -> Array:  # noqa: ARG002
        def weights(distances: Array) -> Array:
            near = 1.0 / distances.sqrt().clamp_min(self.smoothing)
            return near / near.sum()

        shape = (parts.shape[0], parts.shape[1])
        # from the median of coordinates, which one infinite row cannot move
        centre = local(middle, parts, shape=(parts.shape[0], parts.shape[2]))
        for _ in range(self.iterations):
            distances = centre_distances(c, parts, centre)
            centre = weighted(c, parts, local(lambda d: by_worker(weights, d), distances, shape=shape))
        return centre


STRATEGY = GeometricMedian
