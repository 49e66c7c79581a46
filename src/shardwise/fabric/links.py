"""Directed links of a fabric as columns, and what every fabric can do: say which links a message takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints


@dataclass(frozen=True)
class Links:
    """One row per directed link; a full-duplex cable is two of them."""

    capacity: Floats
    """bytes/s"""
    latency_s: Floats
    level: Ints
    """which level of the cluster the link belongs to; of a graph from a file: 0 inside a node, 1 outside"""
    tier: Ints
    """position in `tiers`"""
    tiers: tuple[str, ...]
    name_of: Callable[[int], str]
    """a link as a person would name it"""

    def __len__(self) -> int:
        return len(self.capacity)


@dataclass(frozen=True)
class Routes:
    """The links of each flow. A message over several connections, or over several paths, is several flows."""

    links: Ints
    """flows x longest path; a free place holds the number of links, which is no link"""
    message: Ints
    """which message each flow belongs to"""
    share: Floats
    """which part of its message a flow carries"""
    weight: Floats | None = None
    """part of the flow on each of its links, where it does not take one way but several at once"""


class RoutedFabric(Protocol):
    """A fabric: GPUs, links, and a rule for the way between two GPUs."""

    @property
    def gpus(self) -> int: ...
    @property
    def links(self) -> Links: ...
    @property
    def node(self) -> Ints:
        """of each GPU"""
        ...

    @property
    def rail(self) -> Ints:
        """of each GPU's network card"""
        ...

    @property
    def unit(self) -> Ints:
        """the group of leaves each GPU lies under"""
        ...

    def routes(self, source: Ints, target: Ints) -> Routes: ...
    def reducing(self, gpus: Ints) -> tuple[Ints, Ints]:
        """(link into, link out of) the switch inside the node of each GPU; -1 where there is none"""
        ...

    def adding(self, sums: Ints) -> Ints:
        """Links, up and down, of the trees of switches above the nodes in which the parts of each sum (rows of GPUs)
        meet; a link is there once for each sum that it carries."""
        ...


def busy_seconds(sent: Floats, capacity: Floats) -> Floats:
    """What each link needs for its bytes; nothing where nothing is sent, also on a link that is away."""
    return np.divide(sent, capacity, out=np.zeros(len(sent)), where=sent > 0)


def mixed(*parts: Ints | NDArray[np.uint64] | int) -> NDArray[np.uint64]:
    """A number for each row that looks random but is always the same for the same parts (SplitMix64)."""
    found = np.zeros(np.broadcast_shapes(*(np.shape(p) for p in parts)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            found = (found ^ np.asarray(part).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            found = found ^ (found >> np.uint64(31))
    return found
