"""What a collective algorithm must say about itself.

Byte counts are fractions of `B`, the buffer of the operation: all_reduce and broadcast: the buffer of one rank;
all_gather: the gathered buffer; reduce_scatter: the buffer that goes in; all_to_all: what one rank holds to send
(the part for itself included); send: the message; neighbor_average: the buffer of one rank, which becomes the mean
of its own and those it received.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "neighbor_average")

NODE_SWITCH = -1
"""end of a flow: the adding switch of the node in which the flow's other end lies"""
FABRIC_SWITCH = -2
"""end of a flow: the adding switches above the nodes, which act as one"""


@dataclass(frozen=True)
class Shape:
    """A group of ranks as it lies in the cluster: level axis first, any shape of groups behind it."""

    members: Floats
    """members[i]: ranks of the group inside one block of level i; the last entry is the whole group. Where blocks hold
    different numbers: of nodes the largest number that all of theirs are made of, of what is above as many as leave the
    fullest block by its links"""
    out: Floats | None = None
    """out[i]: of the size - 1 hops of a chain through all ranks, how many leave a block of level i, on average; None:
    as regular blocks have it"""
    in_nodes: tuple[Floats, Floats] | None = None
    """(fewest, most) ranks that a node holds of a group that leaves it, where nodes hold different numbers"""
    same_rail: Floats | float = 1.0
    """of the ranks in other nodes, the share whose network card is on a rank's own rail"""
    next_on_rail: NDArray[np.bool_] | bool = True
    """is the next rank's card on the own rail"""
    torus: tuple[tuple[int, ...], ...] = ()
    """of each level whose blocks are joined to neighbours alone, how many along each axis; none: switches"""
    one_rail: Floats | None = None
    """one_rail[i]: a GPU's part of the ways into level i over what one rail of its block has, all of which goes to a
    message that leaves the block alone; None: as much"""

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
    def passed(self) -> NDArray[np.bool_]:
        """Does the group send into level i: to meet there, or on the way to a higher one."""
        leaves = self.size > self.below if self.out is None else np.concatenate([self.out[:1], self.out[:-1]]) > 0.0
        return np.concatenate([self.crossed[:1], leaves[1:]])

    @cached_property
    def highest(self) -> NDArray[np.bool_]:
        """Is level i the highest that the group crosses."""
        above = np.concatenate([self.crossed[1:], np.zeros_like(self.crossed[:1])])
        return self.crossed & ~np.logical_or.accumulate(above[::-1], axis=0)[::-1]

    @cached_property
    def nodes(self) -> Floats:
        """Level-0 blocks the group touches."""
        return np.asarray(self.size / self.members[0])

    @cached_property
    def cards(self) -> Floats:
        """Network cards of a node by which the group's rings leave it. A communication library lays as many rings as
        the node with the fewest of its ranks has cards for: NCCL takes the least number of channels that any rank
        found (initTransportsRank)."""
        return np.asarray(self.members[0] if self.in_nodes is None else self.in_nodes[0])

    @cached_property
    def fullest(self) -> Floats:
        """Ranks of the group in the node that holds most of them."""
        return np.asarray(self.members[0] if self.in_nodes is None else self.in_nodes[1])

    @cached_property
    def leaving(self) -> Floats:
        """Of the hops of a ring through all ranks: the share that leaves a block below level i."""
        chain = self.hops[::-1].cumsum(axis=0)[::-1]
        return np.where(self.size > self.below, (chain + 1.0) / self.size, 0.0)

    @cached_property
    def hops(self) -> Floats:
        """Of the size - 1 hops of a chain through all ranks: how many cross level i and no higher one."""
        out = self.size / self.members - 1.0 if self.out is None else self.out
        return np.asarray(np.concatenate([self.size[None] - 1.0, out[:-1]]) - out)


@dataclass(frozen=True)
class Load:
    """What one call does to the cluster, level axis first. No seconds yet."""

    steps: Floats
    """dependent messages that cross level i"""
    volume: Floats
    """fraction of B that the busiest GPU sends into level i; above the nodes what goes higher is in it too"""
    own: Floats
    """fraction of B a rank copies to itself"""
    across: Floats | None = None
    """fraction of B that one GPU sends through level i, and no higher one, to a card on another rail; None: nothing"""


@dataclass(frozen=True)
class Round:
    """Flows that run side by side, entry by entry; `source` and `target` are places in the group, or switches."""

    source: Ints
    target: Ints
    fraction: Floats
    """of B"""
    times: int = 1
    """so many rounds like this follow one another"""


@dataclass(frozen=True)
class Ran:
    """An execution on real arrays: what came out, what each rank sent, how many rounds it took."""

    results: list[NDArray[np.float64]]
    sent_bytes: list[int]
    rounds: int


Sent = Callable[[str, int, int], Floats]
Rounds = Callable[[str, int, int], int]
Flows = Callable[[str, int, int], Iterator[Round]]
Uneven = Callable[[str, Sequence[int], int], Iterator[Round]]
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
    """switches that must add numbers: none, node (level 0), network (all levels above it) or all (every level)"""
    spans_nodes: bool
    """only makes sense for a group over more than one node"""
    sent: Sent
    """(op, ranks, ranks per node) -> fraction of B each rank sends, exactly"""
    rounds: Rounds
    """(op, ranks, ranks per node) -> dependent rounds"""
    flows: Flows
    """(op, ranks, ranks per node) -> who sends what to whom, round by round; sums to `sent`"""
    uneven: Uneven | None = None
    """(op, ranks in each node, cards at most) -> the same where nodes hold different numbers, over `Shape.cards` cards
    of each; None: the longest runs that all nodes are made of count as nodes"""
    torus: Literal["also", "never", "only"] = "also"
    """where links lead to neighbours alone: an algorithm of distant partners never runs there"""
    pipelined: bool = False
    """long messages go in pieces, so that all rounds run at once; else a round waits for the one before"""
    levels_in_turn: bool = False
    """rounds inside nodes and rounds across them follow one another, so that their times add up"""
    load: Loads
    average: Loads | None = None
    """the same with the bytes of an average GPU, where the busiest sends more; None: all send as much"""
    run: Run
    """(op, arrays, ranks per node) -> the real thing on small arrays"""
