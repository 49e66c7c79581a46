"""What a collective algorithm must say about itself.

Byte counts are fractions of `B`, the buffer of the operation: all_reduce and broadcast: the buffer of one rank;
all_gather: the gathered buffer; reduce_scatter: the buffer that goes in; all_to_all: what one rank holds to send
(the part for itself included); send: the message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")


@dataclass(frozen=True)
class Shape:
    """A group of ranks as it lies in the cluster: level axis first, any shape of groups behind it."""

    members: Floats
    """members[i]: ranks of the group inside one block of level i; the last entry is the whole group"""

    @cached_property
    def size(self) -> Floats:
        return np.asarray(self.members[-1])

    @cached_property
    def below(self) -> Floats:
        """Ranks of the group inside one child block of level i, whose links into level i they share."""
        return np.concatenate([np.ones_like(self.members[:1]), self.members[:-1]])

    @cached_property
    def crossed(self) -> NDArray[np.bool_]:
        """Does the group use the links of level i at all."""
        return self.members > self.below

    @cached_property
    def nodes(self) -> Floats:
        """Level-0 blocks the group touches."""
        return np.asarray(self.size / self.members[0])

    @cached_property
    def hops(self) -> Floats:
        """Of the size - 1 hops of a chain through all ranks: how many cross level i."""
        return np.asarray(self.size / self.below - self.size / self.members)


@dataclass(frozen=True)
class Load:
    """What one call does to the cluster, level axis first. No seconds yet."""

    steps: Floats
    """dependent messages that cross level i"""
    volume: Floats
    """fraction of B that one GPU sends into level i"""
    own: Floats
    """fraction of B a rank copies to itself"""


@dataclass(frozen=True)
class Ran:
    """An execution on real arrays: what came out, what each rank sent, how many rounds it took."""

    results: list[NDArray[np.float64]]
    sent_bytes: list[int]
    rounds: int


Sent = Callable[[str, int, int], Floats]
Rounds = Callable[[str, int, int], int]
Loads = Callable[[str, Shape], Load]
Run = Callable[[str, list[NDArray[np.float64]], int], Ran]


@dataclass(frozen=True, kw_only=True)
class Collective:
    name: str
    ops: tuple[str, ...]
    style: str
    """which constants apply: ring, tree, switch or pairwise"""
    pooled: bool
    """ranks of one node share all their network cards (channels are spread over them)"""
    automatic: bool
    """a communication library takes it unasked; others run only when named"""
    reduces_at: str
    """switches that must add numbers: none, node (level 0) or all (every level crossed)"""
    spans_nodes: bool
    """only makes sense for a group over more than one node"""
    sent: Sent
    """(op, ranks, ranks per node) -> fraction of B each rank sends, exactly"""
    rounds: Rounds
    """(op, ranks, ranks per node) -> dependent rounds"""
    load: Loads
    run: Run
    """(op, arrays, ranks per node) -> the real thing on small arrays"""
