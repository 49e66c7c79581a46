"""How long a pipeline takes for many policies at once: the longest path through a schedule's own order.

Tasks that wait for equally many others form a level, and a level is computed at once for all its ranks and policies.
What every task takes is looked up by kind and piece, so policies may differ in every second of it.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardwise.schedules import schedules
from shardwise.tasks.engine import Floats, Ints
from shardwise.tasks.program import FORWARD, Program, edge_tasks, finishes_gradient, program_of

BLOCK = 1 << 21
"""tasks x policies computed at once"""
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
    tasks: Ints
    before: Ints
    """the task before each on its rank, or the row behind the last, which is always 0"""
    needs: Ints
    """needs x tasks, filled up with that row"""
    crosses: Floats
    """needs x tasks: 1 where the result is sent"""


@dataclass(frozen=True)
class _Levels:
    levels: tuple[_Level, ...]
    lane_start: Ints
    begin: Ints
    """ranks x chunks: the first forward of that chunk"""
    finish: Ints
    """ranks x chunks: the task that finishes the gradients of that chunk"""
    kind: Ints
    piece: Ints
    sends: NDArray[np.bool_]


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


def pipeline_ends(name: str, pp: int, vpp: int, micro_batches: int, lengths: Lengths) -> Ends:
    """Beyond some rounds of pp micro-batches the last of them stands for all that follow."""
    rounds = micro_batches // pp
    if rounds <= ROUNDS:
        return _ends(name, pp, vpp, micro_batches, lengths)
    left = micro_batches - (rounds - ROUNDS) * pp
    longer, shorter = (_ends(name, pp, vpp, m, lengths) for m in (left, left - pp))
    again = float(rounds - ROUNDS)
    busy = longer.busy + again * (longer.busy - shorter.busy)
    begin, ready, still_busy = longer.begin, longer.ready, longer.still_busy
    if schedules()[name].piles_up:
        # all micro-batches pass a chunk before the next one begins: with each round there is more time between chunks
        begin, ready, still_busy = (
            whole + again * (whole - less)
            for whole, less in ((begin, shorter.begin), (ready, shorter.ready), (still_busy, shorter.still_busy))
        )
    more = longer.last.max(axis=0) - shorter.last.max(axis=0)
    # few micro-batches may wait for messages on their way round, in time that more of them would fill
    last = np.maximum(longer.last + again * more, longer.first + busy)
    return Ends(longer.first, last, busy, begin, ready, still_busy)


def _ends(name: str, pp: int, vpp: int, micro_batches: int, lengths: Lengths) -> Ends:
    plan = _levels(name, pp, vpp, micro_batches)
    count, columns = len(plan.kind), len(lengths.stopped)
    first, last, busy = (np.empty((pp, columns)) for _ in range(3))
    begin, ready, still_busy = (np.empty((*plan.finish.shape, columns)) for _ in range(3))
    width = max(BLOCK // count, 1)
    for at in range(0, columns, width):
        part = slice(at, at + width)
        duration = lengths.pieces[plan.kind, plan.piece, part]
        duration[plan.sends] += lengths.stopped[part]
        end = _followed(plan, duration, lengths.under_way[part])
        first[:, part] = end[plan.lane_start[:-1]] - duration[plan.lane_start[:-1]]
        last[:, part] = end[plan.lane_start[1:] - 1]
        begin[:, :, part] = end[plan.begin] - duration[plan.begin]
        worked = np.cumsum(duration, axis=0)
        total = worked[plan.lane_start[1:] - 1]
        busy[:, part] = np.diff(total, axis=0, prepend=0.0)
        still_busy[:, :, part] = total[:, None] - worked[plan.finish] + duration[plan.finish]
        ready[:, :, part] = last[:, None, part] - (end[plan.finish] - duration[plan.finish])
    return Ends(first, last, busy, begin, ready, still_busy)


def _followed(plan: "_Levels", duration: Floats, late: Floats) -> Floats:
    """End of every task."""
    end = np.zeros((len(duration) + 1, duration.shape[1]))
    for level in plan.levels:
        start = end[level.before]
        for need, crosses in zip(level.needs, level.crosses, strict=True):
            np.maximum(start, end[need] + crosses[:, None] * late, out=start)
        end[level.tasks] = start + duration[level.tasks]
    return end


@lru_cache(maxsize=256)
def _levels(name: str, pp: int, vpp: int, micro_batches: int) -> _Levels:
    program = program_of(name, pp, vpp, micro_batches)
    tasks, count = program.tasks, len(program.rank)
    before = np.arange(-1, count - 1)
    before[tasks.lane_start[:-1]] = count
    starts = tasks.need_start
    most = int(np.diff(starts).max(initial=0))
    needs = np.full((most, count), count, dtype=np.int64)
    crosses = np.zeros((most, count))
    for place in range(most):
        here = np.flatnonzero(np.diff(starts) > place)
        at = starts[here] + place
        needs[place, here] = tasks.need_task[at]
        crosses[place, here] = program.rank[program.need_source[at]] != program.rank[here]
    sends = np.zeros(count, dtype=np.bool_)
    sends[program.needs[program.crosses]] = True
    level = _depths(program, before, needs)
    by_level = np.split(np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))[:-1])
    return _Levels(
        levels=tuple(_Level(at, before[at], needs[:, at], crosses[:, at]) for at in by_level),
        lane_start=tasks.lane_start, begin=edge_tasks(program, program.kind == FORWARD, last=False),
        finish=edge_tasks(program, finishes_gradient(program), last=True),
        kind=program.kind, piece=program.stage, sends=sends,
    )  # fmt: skip


def _depths(program: Program, before: Ints, needs: Ints) -> Ints:
    """How many tasks come before each on the longest chain."""
    waits = [[int(t) for t in column if t < len(before)] for column in np.vstack([before, needs]).T]
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
