"""How long a pipeline takes for many policies at once: the longest path through a schedule's own order.

Tasks that wait for equally many others form a level, and a level is computed at once for all its ranks and policies.
What every task takes is looked up by kind and piece, so policies may differ in every second of it.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise

import numpy as np

from shardwise.schedules import schedules
from shardwise.tasks.engine import Floats, Ints
from shardwise.tasks.program import CODES, FORWARD, Program, edge_tasks, finishes_gradient, program_of

BLOCK = 1 << 21
"""tasks x policies computed at once"""
FIRST, NO_MESSAGE = -2, -1
"""rows of a table of times"""
ROUNDS = 4
"""rounds of pp micro-batches after which a pipeline repeats itself: every further one takes as long as the last"""


@dataclass(frozen=True)
class Lengths:
    """Seconds by policy."""

    pieces: Floats
    """kinds of task (forward, backward, input gradient, weight gradient) x pieces x policies"""
    stopped: Floats
    """per policy: of a transfer, the part its sender waits for"""
    under_way: Floats
    """and the rest of it"""


@dataclass(frozen=True)
class _Level:
    """Tasks that wait for equally many others, one behind another in the table of times."""

    tasks: slice
    waits: Ints
    """what each waits for, as rows of the table: the task before it on its rank, then what others send it"""
    lengths: Ints
    """what each takes, as a row of the table of lengths"""


@dataclass(frozen=True)
class _Levels:
    """A table of times has a row for the end of every task, level by level, and two for what there is not: a task
    before a rank's first, a message. A table of lengths has a row for every kind of task on every piece, then the same
    of those that send."""

    count: int
    levels: tuple[_Level, ...]
    lengths: Ints
    """of every task, in the order of the levels"""
    first: Ints
    last: Ints
    """each rank's first and last task"""
    begin: Ints
    """ranks x chunks: the first forward of that chunk"""
    finish: Ints
    """ranks x chunks: the task that finishes the gradients of that chunk"""
    own: Ints
    """ranks x lengths: what tasks of a rank take, as rows of the table of lengths"""
    often: Floats
    """ranks x (1 + chunks) x lengths: how often a rank does that, and how often from the `finish` of each chunk on"""


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

    @classmethod
    def empty(cls, ranks: int, chunks: int, policies: int) -> "Ends":
        of_ranks = [np.empty((ranks, policies)) for _ in range(3)]
        return cls(*of_ranks, *(np.empty((ranks, chunks, policies)) for _ in range(3)))

    def take(self, policies: Ints | slice) -> "Ends":
        return Ends(*(getattr(self, field.name)[..., policies] for field in fields(self)))

    def put(self, policies: Ints, found: "Ends") -> None:
        for field in fields(self):
            getattr(self, field.name)[..., policies] = getattr(found, field.name)

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
        more = longer.last.max(axis=0) - shorter.last.max(axis=0)
        # few micro-batches may wait for messages on their way round, in time that more of them would fill
        last = np.maximum(longer.last + again * more, longer.first + busy)
        self.put(policies, Ends(longer.first, last, busy, begin, ready, still_busy))
        return self


def pipeline_ends(name: str, pp: int, vpp: int, micro_batches: int | Ints, lengths: Lengths) -> Ends:
    """Beyond some rounds of pp micro-batches the last of them stands for all that follow."""
    micro = np.broadcast_to(micro_batches, lengths.stopped.shape)
    more_rounds = np.maximum(micro // pp - ROUNDS, 0)
    least, many = micro - more_rounds * pp, np.flatnonzero(more_rounds)
    # pipelines of all lengths at once: what is long to one may be short to another
    either = np.concatenate([least, least[many] - pp])
    columns = np.concatenate([np.arange(len(micro)), many])
    found = _of_each(name, pp, vpp, either, lengths, columns)
    longer = found.take(slice(len(micro)))
    if not len(many):
        return longer
    return longer.repeated(many, found.take(slice(len(micro), None)), more_rounds[many], schedules()[name].piles_up)


def _of_each(name: str, pp: int, vpp: int, micro_batches: Ints, lengths: Lengths, columns: Ints) -> Ends:
    """Of pipelines of so many micro-batches, each with the lengths of one of the columns."""
    table = np.concatenate([lengths.pieces, lengths.pieces + lengths.stopped]).reshape(-1, len(lengths.stopped))
    plans = {micro: _levels(name, pp, vpp, micro) for micro in sorted(set(micro_batches.tolist()))}
    ranks, chunks = next(iter(plans.values())).finish.shape
    found = Ends.empty(ranks, chunks, len(columns))
    for micro, plan in plans.items():
        mine = np.flatnonzero(micro_batches == micro)
        width = max(BLOCK // plan.count, 1)
        for at in range(0, len(mine), width):
            part = mine[at : at + width]
            found.put(part, _ends(plan, table.take(columns[part], axis=1), lengths.under_way[columns[part]]))
    return found


def _ends(plan: _Levels, lengths: Floats, late: Floats) -> Ends:
    times = _followed(plan, lengths, late)
    last, busy = times[plan.last], plan.often @ lengths[plan.own]
    ready = last[:, None] - (times[plan.finish] - lengths[plan.lengths[plan.finish]])
    return Ends(
        first=times[plan.first] - lengths[plan.lengths[plan.first]],
        last=last,
        busy=busy[:, 0],
        begin=times[plan.begin] - lengths[plan.lengths[plan.begin]],
        ready=ready,
        still_busy=busy[:, 1:],
    )


def _followed(plan: _Levels, lengths: Floats, late: Floats) -> Floats:
    """The table of times."""
    times = np.empty((plan.count + 2, lengths.shape[1]))
    times[FIRST], times[NO_MESSAGE] = 0.0, -np.inf
    for level in plan.levels:
        start, *messages = times.take(level.waits, axis=0)
        for sent in messages:
            sent += late
            np.maximum(start, sent, out=start)
        np.add(start, lengths.take(level.lengths, axis=0), out=times[level.tasks])
    return times


@lru_cache(maxsize=256)
def _levels(name: str, pp: int, vpp: int, micro_batches: int) -> _Levels:
    program = program_of(name, pp, vpp, micro_batches)
    tasks, count = program.tasks, len(program.rank)
    before = np.arange(-1, count - 1)
    before[tasks.lane_start[:-1]] = FIRST
    needs = _messages(program)
    level = _depths(program, before, needs)
    order = np.argsort(level, kind="stable")
    row = np.empty(count + 2, dtype=np.int64)
    row[order], row[[FIRST, NO_MESSAGE]] = np.arange(count), (FIRST, NO_MESSAGE)
    waits = row[np.vstack([before, needs])[:, order]]
    length = _length_rows(program)
    bounds = [0, *np.cumsum(np.bincount(level)).tolist()]
    finish = edge_tasks(program, finishes_gradient(program), last=True)
    own, often = _how_often(tasks.lane_start, finish, length)
    return _Levels(
        count=count,
        levels=tuple(
            _Level(slice(a, b), np.ascontiguousarray(waits[:, a:b]), length[order[a:b]])
            for a, b in pairwise(bounds)
        ),
        lengths=length[order], first=row[tasks.lane_start[:-1]], last=row[tasks.lane_start[1:] - 1],
        begin=row[edge_tasks(program, program.kind == FORWARD, last=False)], finish=row[finish],
        own=own, often=often,
    )  # fmt: skip


def _messages(program: Program) -> Ints:
    """Needs x tasks: whose result is sent to each. What a rank needs of itself its order already puts first."""
    tasks, count = program.tasks, len(program.rank)
    waiting = np.repeat(np.arange(count), np.diff(tasks.need_start))
    sent = np.flatnonzero(program.rank[program.need_source] != program.rank[waiting])
    task, which = waiting[sent], tasks.need_task[sent]
    place = np.arange(len(task)) - np.searchsorted(task, task)
    needs = np.full((place.max(initial=-1) + 1, count), NO_MESSAGE, dtype=np.int64)
    needs[place, task] = which
    return needs


def _length_rows(program: Program) -> Ints:
    """The row of each task in the table of lengths."""
    sends = np.zeros(len(program.rank), dtype=np.int64)
    sends[program.needs[program.crosses]] = 1
    each = len(CODES) * program.stages
    return np.asarray(sends * each + program.kind * program.stages + program.stage)


def _how_often(lane_start: Ints, finish: Ints, length: Ints) -> tuple[Ints, Floats]:
    """`own` and `often` of `_Levels`."""
    lanes = [slice(a, b) for a, b in pairwise(lane_start.tolist())]
    distinct = [np.unique(length[lane]) for lane in lanes]
    most = max(map(len, distinct))
    own, often = np.zeros((len(lanes), most), dtype=np.int64), np.zeros((len(lanes), 1 + finish.shape[1], most))
    for rank, (lane, rows) in enumerate(zip(lanes, distinct, strict=True)):
        own[rank, : len(rows)] = rows
        for place, begin in enumerate((lane.start, *finish[rank].tolist())):
            often[rank, place, : len(rows)] = np.bincount(
                np.searchsorted(rows, length[begin : lane.stop]), minlength=len(rows)
            )
    return own, often


def _depths(program: Program, before: Ints, needs: Ints) -> Ints:
    """How many tasks come before each on the longest chain."""
    waits = [[t for t in column if t >= 0] for column in np.vstack([before, needs]).T.tolist()]
    depth: list[int] = [-1] * len(waits)
    lanes = program.tasks.lane_start.tolist()
    position = lanes[:-1]
    moved = True
    while moved:
        moved = False
        for lane, task in enumerate(position):
            while task < lanes[lane + 1] and all(depth[t] >= 0 for t in waits[task]):
                depth[task] = 1 + max((depth[t] for t in waits[task]), default=-1)
                task += 1
            moved |= task > position[lane]
            position[lane] = task
    return np.array(depth, dtype=np.int64)
