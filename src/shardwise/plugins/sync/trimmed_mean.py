"""Trimmed mean: of each coordinate the f smallest and f largest are left out. Sorted, so that infinities do no harm."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._robust import Robust
from shardwise.plugins.sync._strategy import State


@dataclass(frozen=True)
class TrimmedMean(Robust):
    name: ClassVar[str] = "trimmed_mean"
    summary: ClassVar[str] = "mean of each coordinate without its f extremes"
    source: ClassVar[str] = "Yin et al. 2018, arXiv:1803.01498"

    def combine(self, c: Communicator, state: State, parts: Array) -> Array:  # noqa: ARG002
        f, n = self.byzantine, c.n

        def inner(parts: Array) -> Array:
            return parts.sort(dim=1).values[:, f : n - f]

        return c.fold(local(inner, parts, shape=(parts.shape[0], n - 2 * f, parts.shape[2])))


STRATEGY = TrimmedMean
