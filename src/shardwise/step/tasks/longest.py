"""How long pipelines take, for many policies and schedules at once: the longest path through each schedule's own order.

All pipelines go through their levels side by side, and a level is computed at once for all of them. What every task
takes is looked up by kind and piece, so policies may differ in every second of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plugins.schedules import schedules
from shardwise.step.tasks.levels import FIRST, NO_MESSAGE, NOTHING, Levels, levels_of
from shardwise.step.tasks.program import CODES, program_of
from shardwise.step.tasks.single import timed_alone

TOGETHER = 1 << 21
"""tasks x policies followed at once"""
WIDEST = 64
"""policies side by side in a row of the table of times"""
FEW = 2
"""pipelines up to which each is timed by itself"""
ROUNDS = 4
"""rounds of pp micro-batches after which a pipeline repeats itself: every further one takes as long as the last"""


@dataclass(frozen=True)
class Lengths:
    """Seconds by policy."""

    kinds: Floats
    """kinds of task (forward, backward, input gradient, weight gradient) x pieces that are not alike x policies"""
    piece: Ints
    """of each piece of the model: which of those"""
    stopped: Floats
    """per policy: of a transfer, the part its sender waits for"""
    under_way: Floats
    """and the rest of it"""


@dataclass(frozen=True)
class Pipelines:
    """Of policies that share a schedule, its stages and their chunks."""

    schedule: str
    pp: int
    vpp: int
    micro_batches: Ints
    lengths: Lengths


@dataclass(frozen=True)
class Ends:
    """Ranks x policies: when a rank's first task starts and its last one ends, and how long it is at work."""

    first: Floats
    last: Floats
    busy: Floats
    begin: Floats
    """ranks x chunks x policies: start of a chunk's first forward"""
    ready: Floats
    """ranks x chunks x policies: start of the task that finishes a chunk's gradients, before the rank's end"""
    still_busy: Floats
    """and how much of that time the rank is at work"""

    def take(self, policies: Ints | slice) -> "Ends":
        return Ends(*(getattr(self, field.name)[..., policies] for field in fields(self)))

    def repeated(self, policies: Ints, shorter: "Ends", rounds: Ints, piles_up: bool) -> "Ends":
        """With so many more rounds of these policies, each as long as what they have more than `shorter` ones."""
        longer, again = self.take(policies), rounds.astype(np.float64)
        busy = longer.busy + again * (longer.busy - shorter.busy)
        begin, ready, still_busy = longer.begin, longer.ready, longer.still_busy
        if piles_up:
            # all micro-batches pass a chunk before the next one begins: with each round there is more time between
            # chunks
            begin, ready, still_busy = (
                whole + again * (whole - less)
                for whole, less in ((begin, shorter.begin), (ready, shorter.ready), (still_busy, shorter.still_busy))
            )
        # few micro-batches may wait for messages on their way round, in time that more of them would fill: in the long
        # run no round is over before the busiest rank is
        more = np.maximum(longer.last.max(axis=0) - shorter.last.max(axis=0), (longer.busy - shorter.busy).max(axis=0))
        last = np.maximum(longer.last + again * more, longer.first + busy)
        found = Ends(longer.first, last, busy, begin, ready, still_busy)
        for field in fields(self):
            getattr(self, field.name)[..., policies] = getattr(found, field.name)
        return self


def pipeline_ends(asked: Sequence[Pipelines]) -> list[Ends]:
    """Beyond some rounds of pp micro-batches the last of them stands for all that follow."""
    cut = [_Cut.of(each) for each in asked]
    if sum(len(each.column) for each in cut) <= FEW:
        followed = [_one_by_one(each, its) for each, its in zip(asked, cut, strict=True)]
    else:
        followed = _followed([_blocks_of(each, its, _width(cut)) for each, its in zip(asked, cut, strict=True)])
    return [its.put_together(found, each) for each, its, found in zip(asked, cut, followed, strict=True)]


@dataclass(frozen=True)
class _Cut:
    """Pipelines that are followed in place of others: at most some rounds long, then those that are one round shorter
    of such as have more rounds."""

    micro_batches: Ints
    column: Ints
    """the policy of each"""
    longer: Ints
    """policies with more rounds"""
    rounds: Ints
    """how many more these have"""

    @classmethod
    def of(cls, asked: Pipelines) -> "_Cut":
        micro, pp = asked.micro_batches, asked.pp
        more_rounds = np.maximum(micro // pp - ROUNDS, 0)
        least, longer = micro - more_rounds * pp, np.flatnonzero(more_rounds)
        # pipelines of all lengths at once: what is long to one may be short to another
        either = np.concatenate([least, least[longer] - pp])
        return cls(either, np.concatenate([np.arange(len(micro)), longer]), longer, more_rounds[longer])

    def put_together(self, found: Ends, asked: Pipelines) -> Ends:
        if not len(self.longer):
            return found
        whole, shorter = (
            found.take(part) for part in np.split(np.arange(len(self.column)), [len(asked.micro_batches)])
        )
        return whole.repeated(self.longer, shorter, self.rounds, schedules()[asked.schedule].piles_up)


def _one_by_one(asked: Pipelines, cut: _Cut) -> Ends:
    lengths = asked.lengths
    each = [
        timed_alone(
            program_of(asked.schedule, asked.pp, asked.vpp, micro), lengths.kinds[..., column], lengths.piece,
            float(lengths.stopped[column]), float(lengths.under_way[column]),
        )
        for micro, column in zip(cut.micro_batches.tolist(), cut.column.tolist(), strict=True)
    ]  # fmt: skip
    return Ends(*(np.stack(several, axis=-1) for several in zip(*each, strict=True)))


@dataclass(frozen=True)
class _Blocks:
    """Pipelines of one schedule, so many of equally many micro-batches in each block."""

    levels: list[Levels]
    """of each block"""
    table: Floats
    """blocks x (until its end, until its message is there) x rows of lengths x policies"""
    row: Ints
    """of each kind of task on each piece: its row of lengths"""
    place: Ints
    """where each pipeline is among those of all blocks"""


def _width(cut: Sequence[_Cut]) -> int:
    """Policies in a block: about as many as have the same order and equally many micro-batches."""
    orders = sum(len(set(each.micro_batches.tolist())) for each in cut)
    return min(1 << (sum(len(each.column) for each in cut) // max(orders, 1)).bit_length(), WIDEST)


def _blocks_of(asked: Pipelines, cut: _Cut, width: int) -> _Blocks:
    levels, filled, lengths = [], [], asked.lengths
    for micro in sorted(set(cut.micro_batches.tolist())):
        mine = np.flatnonzero(cut.micro_batches == micro)
        blocks = -(-len(mine) // width)
        levels += [levels_of(asked.schedule, asked.pp, asked.vpp, micro)] * blocks
        filled.append(np.resize(mine, blocks * width))
    which = np.concatenate(filled)
    place = np.empty(len(cut.column), dtype=np.int64)
    place[which] = np.arange(len(which))
    column = cut.column[which]
    kinds, unlike = lengths.kinds.take(column, axis=2), lengths.kinds.shape[1]
    seconds = np.concatenate([kinds, kinds + lengths.stopped[column]])
    both = np.stack([seconds, seconds + lengths.under_way[column]])
    by_block = both.reshape(2, -1, len(levels), width).transpose(2, 0, 1, 3)
    row = np.arange(2 * len(CODES))[:, None] * unlike + lengths.piece
    return _Blocks(levels, np.ascontiguousarray(by_block), row.ravel(), place)


def _followed(several: Sequence[_Blocks]) -> list[Ends]:
    marked: list[list[Floats]] = [[] for _ in several]
    for part in _parts(several):
        of_blocks = [(several[which].levels[at], several[which].table[at], several[which].row) for which, at in part]
        for (which, _), found in zip(part, _marked_times(*zip(*of_blocks, strict=True)), strict=True):
            marked[which].append(found)
    return [_ends(blocks, np.stack(found)) for blocks, found in zip(several, marked, strict=True)]


def _parts(several: Sequence[_Blocks]) -> Iterator[list[tuple[int, int]]]:
    """Blocks that are followed at once, as places among `several` and among the blocks of one of these."""
    part: list[tuple[int, int]] = []
    tasks = 0
    for which, blocks in enumerate(several):
        for at, levels in enumerate(blocks.levels):
            each = len(levels.level) * blocks.table.shape[-1]
            if part and tasks + each > TOGETHER:
                yield part
                part, tasks = [], 0
            part.append((which, at))
            tasks += each
    if part:
        yield part


def _marked_times(levels: tuple[Levels, ...], tables: tuple[Floats, ...], rows: tuple[Ints, ...]) -> list[Floats]:
    """Of each block, (start, end) x marked tasks x policies."""
    side = _SideBySide.of(levels)
    table, table_at = np.concatenate(tables, axis=1), _starts([each.shape[1] for each in tables])
    lengths = np.concatenate([row[each.lengths] + at for each, row, at in zip(levels, rows, table_at, strict=True)])
    times = np.empty((2, len(side.place), table.shape[2]))
    nothing = NOTHING * len(levels)
    times[:, FIRST:nothing:NOTHING], times[:, NO_MESSAGE:nothing:NOTHING] = 0.0, -np.inf
    which = side.by_level([lengths, lengths + table.shape[1]])
    _follow(times, side.bounds, side.waits(levels), which, table.reshape(-1, table.shape[2]))
    marked = np.concatenate([each.marked + at for each, at in zip(levels, side.at, strict=True)])
    ends = times[0].take(side.place[marked], axis=0)
    both = np.stack([ends - table[0].take(lengths[marked], axis=0), ends])
    return np.split(both, np.cumsum([len(each.marked) for each in levels])[:-1], axis=1)


@dataclass(frozen=True)
class _SideBySide:
    """Tasks of several orders, level by level."""

    at: Ints
    """the first row of each order, where one comes behind the other"""
    place: Ints
    """of each of these rows: where it is among those of all orders, level by level"""
    before: Ints
    """and how many of other levels come before it"""
    size: Ints
    """and how many there are of its own"""
    bounds: list[int]
    """of the levels"""

    @classmethod
    def of(cls, levels: tuple[Levels, ...]) -> "_SideBySide":
        most = max(len(each.sizes) for each in levels)
        sizes = np.zeros((len(levels), most), dtype=np.int64)
        for row, each in zip(sizes, levels, strict=True):
            row[: len(each.sizes)] = each.sizes
        together = sizes.sum(axis=0)
        before = np.broadcast_to(_starts(together), sizes.shape)
        # an order's rows of a level lie behind those of the orders before it
        place = before + (np.cumsum(sizes, axis=0) - sizes) - _starts(sizes.ravel()).reshape(sizes.shape)
        often = sizes.ravel()
        return cls(
            at=_starts(sizes.sum(axis=1)),
            place=np.repeat(place.ravel(), often) + np.arange(often.sum()),
            before=np.repeat(before.ravel(), often),
            size=np.repeat(np.broadcast_to(together, sizes.shape).ravel(), often),
            bounds=np.cumsum(together).tolist(),
        )

    def by_level(self, columns: list[Ints]) -> Ints:
        """Some numbers of each row, level by level: the first of all rows of a level, then the second of all."""
        found, first = (
            np.empty(len(columns) * len(self.place), dtype=np.int64),
            self.place + (len(columns) - 1) * self.before,
        )
        for number, column in enumerate(columns):
            found[first + number * self.size] = column
        return found

    def waits(self, levels: tuple[Levels, ...]) -> Ints:
        """Rows of a table of times that has the ends of all tasks and then when their messages are there."""
        columns = []
        for number in range(max(len(each.waits) for each in levels)):
            rows = [
                each.waits[number] + at if number < len(each.waits) else np.full(len(each.level), NO_MESSAGE)
                for each, at in zip(levels, self.at, strict=True)
            ]
            columns.append(self.place[np.concatenate(rows)])
            columns[-1] += len(self.place) if number else 0
        return self.by_level(columns)


def _starts(sizes: Sequence[int] | Ints) -> Ints:
    """Where each begins, one behind the other."""
    each = np.asarray(sizes, dtype=np.int64)
    return np.asarray(np.cumsum(each) - each)


def _follow(times: Floats, bounds: list[int], waits: Ints, lengths: Ints, table: Floats) -> None:
    """Fills the table of times, level by level: one look-up of what tasks wait for, one of what they take."""
    ends, each = times.reshape(-1, times.shape[2]), len(waits) // times.shape[1]
    for a, b in pairwise(bounds):
        latest, *others = ends.take(waits[each * a : each * b], axis=0).reshape(each, b - a, -1)
        for other in others:
            np.maximum(latest, other, out=latest)
        took = table.take(lengths[2 * a : 2 * b], axis=0).reshape(2, b - a, -1)
        np.add(latest, took, out=times[:, a:b])


def _ends(blocks: _Blocks, marked: Floats) -> Ends:
    """`marked`: blocks x (start, end) x marked tasks x policies."""
    ranks, chunks = blocks.levels[0].ranks, blocks.levels[0].chunks
    start, end = np.moveaxis(marked, 0, 2).reshape(2, marked.shape[2], -1).take(blocks.place, axis=2)
    last, of_chunks = end[ranks : 2 * ranks], (2, ranks, chunks, -1)
    begin, finish = start[2 * ranks :].reshape(of_chunks)
    busy = _busy(blocks)
    return Ends(start[:ranks], last, busy[:, 0], begin, last[:, None] - finish, busy[:, 1:])


def _busy(blocks: _Blocks) -> Floats:
    """Ranks x (1 + chunks) x policies: seconds at work, in all and from the end of each chunk's gradients on."""
    own = _stacked([each.own for each in blocks.levels])
    seconds = blocks.table[np.arange(len(own))[:, None, None], 0, blocks.row[own]]
    each = _stacked([each.often for each in blocks.levels]) @ seconds
    return np.asarray(np.moveaxis(each, 0, 2).reshape(*each.shape[1:3], -1).take(blocks.place, axis=2))


def _stacked(arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Blocks of different orders may have tasks of fewer kinds: those are done no times."""
    most = max(array.shape[-1] for array in arrays)
    return np.stack([
        array if array.shape[-1] == most else np.pad(array, [*[(0, 0)] * (array.ndim - 1), (0, most - array.shape[-1])])
        for array in arrays
    ])  # fmt: skip
