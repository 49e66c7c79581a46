"""What gloo sends for an operation: who, to whom, messages of which length, how many. Read in gloo's own sources.

Its all-reduce cuts the buffer into segments, two or more for each rank and none above a mebibyte, and passes them to
the rank before; torch builds its reduce-scatter on that, so it moves an all-reduce's bytes. Its all-gather passes
halves of each part to the rank after, its broadcast is a binomial tree, its barrier one of dissemination.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from shardwise.arrays import Floats, Ints

LONGEST_SEGMENT = 1 << 20
ELEMENT = 4
_Row = tuple[int, int, float, float]


@dataclass(frozen=True)
class WireSends:
    source: Ints
    target: Ints
    bytes: Floats
    """of one message"""
    count: Floats
    how: str = "message"
    """message: as gloo frames and announces it, alone; chain: two of a call are under way at a time, so that they may
    follow each other without a gap; ready: alone, with word given before that it may be received; plain: the bytes of a
    connection and nothing else"""

    def matrix(self, ranks: int) -> Floats:
        """Bytes from each rank to each."""
        table = np.zeros((ranks, ranks))
        np.add.at(table, (self.source, self.target), self.bytes * self.count)
        return table

    def placed(self, members: Ints) -> "WireSends":
        """Places of a group as GPUs, for every group at once; `members`: groups x places."""
        groups = len(members)
        return WireSends(
            members[:, self.source].ravel(), members[:, self.target].ravel(), np.tile(self.bytes, groups),
            np.tile(self.count, groups), self.how,
        )  # fmt: skip

    def times(self, often: float) -> "WireSends":
        return WireSends(self.source, self.target, self.bytes, self.count * often, self.how)


def sends_of(rows: Iterable[_Row], how: str = "message") -> WireSends:
    """(from, to, bytes of a message, how many)."""
    columns = list(zip(*((row) for row in rows if row[3] > 0), strict=True)) or [(), (), (), ()]
    source, target = (np.array(column, dtype=np.int64) for column in columns[:2])
    size, count = (np.array(column, dtype=np.float64) for column in columns[2:])
    return WireSends(source, target, size, count, how)


def joined(parts: Sequence[WireSends]) -> WireSends:
    """Several of one kind."""
    source, target, size, count = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("source", "target", "bytes", "count")
    )
    return WireSends(source, target, size, count, parts[0].how)


def table_sends(table: Floats, how: str) -> WireSends:
    """One message for each pair that has bytes."""
    source, target = np.nonzero(table)
    return WireSends(source.astype(np.int64), target.astype(np.int64), table[source, target], np.ones(len(source)), how)


def gloo_sends(op: str, size: float, ranks: int, element: int = ELEMENT) -> WireSends:
    """`size`: of the operation's buffer, as in `collectives`; of a send: of the message, from everyone to the next."""
    if ranks < 2:
        return sends_of(())
    if op in ("all_reduce", "reduce_scatter"):
        return sends_of(_segments(round(size), ranks, element), "chain")
    if op == "all_gather":
        return sends_of(_halves(round(size / ranks), ranks), "chain")
    if op == "all_to_all":
        return sends_of((a, b, size / ranks, 1.0) for a in range(ranks) for b in range(ranks) if a != b)
    if op == "broadcast":
        return sends_of(_tree(size, ranks))
    if op == "send":
        return sends_of((a, (a + 1) % ranks, size, 1.0) for a in range(ranks))
    raise ValueError(f"lab: gloo has no {op}")


def _segments(total: int, ranks: int, element: int) -> Iterable[_Row]:
    longest = LONGEST_SEGMENT // element * element
    number = _up(max(ceil(total / longest), 2 * ranks), ranks)
    each = number // ranks
    length = _up(ceil(total / number), element)
    for rank in range(ranks):
        turns = np.arange(number - each)
        places = np.concatenate([(rank + 1) * each + turns, rank * each + turns]) % number
        sizes, counts = np.unique(np.clip(total - places * length, 0, length), return_counts=True)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            if size:
                yield rank, (rank - 1) % ranks, float(size), float(count)


def _halves(part: int, ranks: int) -> Iterable[_Row]:
    first = part // 2
    for rank in range(ranks):
        for size in (first, part - first):
            yield rank, (rank + 1) % ranks, float(size), float(ranks - 1)


def _tree(size: float, ranks: int) -> Iterable[_Row]:
    reach = 1
    while reach < ranks:
        for rank in range(min(reach, ranks - reach)):
            yield rank, rank + reach, size, 1.0
        reach *= 2


def _up(value: int, step: int) -> int:
    return ceil(value / step) * step
