"""A schedule's order laid out for following it: tasks that wait for equally many others form a level, and all tasks of
a level can be computed at once."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.step.tasks.engine import run
from shardwise.step.tasks.program import CODES, Program, program_of

FIRST, NO_MESSAGE = 0, 1
"""rows of what there is not: a task before a rank's first, a message"""
NOTHING = 2
"""how many such rows there are, before those of the tasks"""


@dataclass(frozen=True)
class Levels:
    """A row for every task, level by level, behind the rows of what there is not. A table of lengths has a row for
    every kind of task on every piece, then the same of those that send."""

    level: Ints
    """of every row; 0 of what there is not"""
    sizes: Ints
    """rows of each level"""
    waits: Ints
    """waits x rows: what a task waits for, the task before it on its rank, then what others send it"""
    lengths: Ints
    """what each takes, as a row of the table of lengths"""
    ranks: int
    chunks: int
    marked: Ints
    """each rank's first task, its last one, then of all its chunks the first forward, and the task that finishes the
    gradients"""
    own: Ints
    """ranks x lengths: what tasks of a rank take, as rows of the table of lengths"""
    often: Floats
    """ranks x (1 + chunks) x lengths: how often a rank does that, and how often from the end of each chunk's gradients
    on"""


@lru_cache(maxsize=256)
def levels_of(name: str, pp: int, vpp: int, micro_batches: int) -> Levels:
    program = program_of(name, pp, vpp, micro_batches)
    tasks, count = program.tasks, len(program.rank)
    before = np.arange(NOTHING - 1, NOTHING + count - 1)
    before[tasks.lane_start[:-1]] = FIRST
    waits = np.column_stack([before, _messages(program)])
    # of tasks that all take 1, each ends when as many have passed as its longest chain has
    chain = run(tasks, np.ones(count), np.zeros(len(tasks.need_task)), np.zeros(count)).end
    level = np.concatenate([np.zeros(NOTHING, dtype=np.int64), chain.astype(np.int64)])
    order = np.argsort(level, kind="stable")
    row = np.empty_like(order)
    row[order] = np.arange(len(order))
    of_rows = np.vstack([np.zeros((NOTHING, waits.shape[1]), dtype=np.int64), waits])[order]
    length = _length_rows(program)
    begin, finish = program.first_forwards, program.last_gradients
    marked = [tasks.lane_start[:-1], tasks.lane_start[1:] - 1, begin.ravel(), finish.ravel()]
    own, often = _how_often(tasks.lane_start, finish, length)
    return Levels(
        level=level[order], sizes=np.bincount(level), waits=np.ascontiguousarray(row[of_rows].T),
        lengths=np.concatenate([np.zeros(NOTHING, dtype=np.int64), length])[order], ranks=pp, chunks=finish.shape[1],
        marked=row[NOTHING + np.concatenate(marked)], own=own, often=often,
    )  # fmt: skip


def _messages(program: Program) -> Ints:
    """Tasks x needs: rows of those whose result is sent to each. What a rank needs of itself its order already puts
    first."""
    tasks, count = program.tasks, len(program.rank)
    sent = np.flatnonzero(program.apart)
    task, which = program.waiting[sent], tasks.need_task[sent]
    place = np.arange(len(task)) - np.searchsorted(task, task)
    needs = np.full((count, max(place.max(initial=0) + 1, 1)), NO_MESSAGE, dtype=np.int64)
    needs[task, place] = NOTHING + which
    return needs


def _length_rows(program: Program) -> Ints:
    """The row of each task in the table of lengths."""
    sends = np.zeros(len(program.rank), dtype=np.int64)
    sends[program.needs[program.crosses]] = 1
    each = len(CODES) * program.stages
    return np.asarray(sends * each + program.kind * program.stages + program.stage)


def _how_often(lane_start: Ints, finish: Ints, length: Ints) -> tuple[Ints, Floats]:
    """`own` and `often` of `Levels`."""
    lanes = [slice(a, b) for a, b in pairwise(lane_start.tolist())]
    distinct = [np.flatnonzero(np.bincount(length[lane])) for lane in lanes]
    most = max(map(len, distinct))
    own, often = np.zeros((len(lanes), most), dtype=np.int64), np.zeros((len(lanes), 1 + finish.shape[1], most))
    for rank, (lane, rows) in enumerate(zip(lanes, distinct, strict=True)):
        own[rank, : len(rows)] = rows
        for place, begin in enumerate((lane.start, *finish[rank].tolist())):
            often[rank, place, : len(rows)] = np.bincount(
                np.searchsorted(rows, length[begin : lane.stop]), minlength=len(rows)
            )
    return own, often
