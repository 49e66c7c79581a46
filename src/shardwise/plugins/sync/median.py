"""Median of each coordinate; of an even number the mean of the middle two."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._robust import Robust, middle
from shardwise.plugins.sync._strategy import State


@dataclass(frozen=True)
class Median(Robust):
    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median of each coordinate"
    source: ClassVar[str] = "Yin et al. 2018, arXiv:1803.01498"

    def combine(self, c: Communicator, state: State, parts: Array) -> Array:  # noqa: ARG002
        return local(middle, parts, shape=(parts.shape[0], parts.shape[2]))


STRATEGY = Median
