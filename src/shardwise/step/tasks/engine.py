"""The core: tasks on lanes, each lane one after another, a task no sooner than what it needs. Nothing knows training.

Start of a task = the latest of: the end of the task before it on its lane, its release, and the end of everything it
needs plus that need's delay. That is a longest path, so one pass over the tasks in any order that respects the needs
is exact. Tasks find such an order once and keep it, however often they are timed; `again` times many steps at once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.arrays import Floats, Ints


@dataclass(frozen=True)
class _Order:
    """Tasks in an order in which everything a task waits for comes before it. Places count from 1: at 0 is what there
    is not, which ends at 0."""

    task: Ints
    before: Ints
    """place of the task before each on its lane"""
    needs: list[Ints]
    """places of the first task that each needs, of the second ..."""
    which: list[Ints]
    """and the number of that need; where it is none, one that no need has"""


@dataclass(frozen=True)
class Tasks:
    """Tasks are numbered lane by lane: lane k holds tasks lane_start[k] up to lane_start[k + 1], in their order."""

    lane_start: Ints
    need_start: Ints
    """the needs of task i are need_task[need_start[i] : need_start[i + 1]]"""
    need_task: Ints

    def __len__(self) -> int:
        return int(self.lane_start[-1])

    @classmethod
    def of(cls, lanes: list[int], needs: list[list[int]]) -> "Tasks":
        """From the number of tasks on each lane and the list of needs of each task."""
        starts = np.cumsum([0, *lanes])
        flat = [task for found in needs for task in found]
        return cls(starts, np.cumsum([0, *map(len, needs)]), np.array(flat, dtype=np.int64))

    @cached_property
    def before(self) -> Ints:
        """The task before each on its lane, -1 for the first."""
        found = np.arange(-1, len(self) - 1)
        found[self.lane_start[:-1][np.diff(self.lane_start) > 0]] = -1
        return found

    @cached_property
    def order(self) -> _Order:
        task = np.array(_in_order(self), dtype=np.int64)
        place = np.zeros(len(self) + 1, dtype=np.int64)  # the last one: of no task
        place[task] = np.arange(1, len(self) + 1)
        none = len(self.need_task)
        source = np.append(self.need_task, -1)
        number = np.diff(self.need_start)[task]
        which = [np.where(number > nth, self.need_start[task] + nth, none) for nth in range(int(number.max(initial=0)))]
        return _Order(task, place[self.before[task]], [place[source[each]] for each in which], which)


@dataclass(frozen=True)
class EngineRun:
    start: Floats
    end: Floats


def run(tasks: Tasks, duration: Floats, delay: Floats, release: Floats) -> EngineRun:
    """`delay` is per need; `duration` and `release` per task."""
    order, late = tasks.order, np.append(delay, 0.0)
    begin, length = release[order.task], duration[order.task]
    waits = [late[which] for which in order.which]
    ends = np.array(_ends(order, begin, length, waits))
    starts = np.maximum(begin, ends[order.before])
    for places, wait in zip(order.needs, waits, strict=True):
        starts = np.maximum(starts, ends[places] + wait)
    start, end = np.empty(len(tasks)), np.empty(len(tasks))
    start[order.task], end[order.task] = starts, ends[1:]
    return EngineRun(start, end)


def _ends(order: _Order, begin: Floats, length: Floats, waits: list[Floats]) -> list[float]:
    """In order, behind that of what there is not."""
    before, released, took = order.before.tolist(), begin.tolist(), length.tolist()
    ends = [0.0]
    add = ends.append
    if len(waits) == 1:  # as nearly all schedules have it
        for previous, at, lasts, source, wait in zip(
            before, released, took, order.needs[0].tolist(), waits[0].tolist(), strict=True
        ):
            latest = ends[previous]
            there = ends[source] + wait
            if there > latest:
                latest = there
            add((at if at > latest else latest) + lasts)
        return ends
    needs = [(places.tolist(), wait.tolist()) for places, wait in zip(order.needs, waits, strict=True)]
    for task, (previous, at, lasts) in enumerate(zip(before, released, took, strict=True)):
        there = [ends[sources[task]] + wait[task] for sources, wait in needs]
        add(max(at, ends[previous], *there) + lasts)
    return ends


def again(tasks: Tasks, duration: Floats, delay: Floats, release: Floats) -> Floats:
    """End of every task for many steps at once: `duration` has one row per task and one column per step."""
    end = np.empty_like(duration)
    previous, needs, need_task = tasks.before.tolist(), tasks.need_start.tolist(), tasks.need_task.tolist()
    late, begin = delay.tolist(), release.tolist()
    for task in tasks.order.task.tolist():
        at = np.full(duration.shape[1], begin[task]) if begin[task] > 0 or previous[task] < 0 else end[previous[task]]
        if begin[task] > 0 and previous[task] >= 0:
            at = np.maximum(at, end[previous[task]])
        for need in range(needs[task], needs[task + 1]):
            at = np.maximum(at, end[need_task[need]] + late[need])
        np.add(at, duration[task], out=end[task])
    return end


def _in_order(tasks: Tasks) -> list[int]:
    """Lane after lane, each as far as what it needs is there."""
    lane_start, number = tasks.lane_start.tolist(), np.diff(tasks.need_start)
    first = np.append(tasks.need_task, -1)[np.where(number > 0, tasks.need_start[:-1], -1)].tolist()
    more = {
        task: tasks.need_task[tasks.need_start[task] + 1 : tasks.need_start[task + 1]].tolist()
        for task in np.flatnonzero(number > 1).tolist()
    }
    done, position = [*[False] * len(tasks), True], lane_start[:-1]  # the last one: of no task
    waiting: dict[int, list[int]] = {}
    order: list[int] = []
    ready = list(range(len(position) - 1, -1, -1))
    while ready:
        lane = ready.pop()
        task, stop = position[lane], lane_start[lane + 1]
        while task < stop:
            need = first[task]
            if task in more and done[need]:
                need = next((each for each in more[task] if not done[each]), need)
            if not done[need]:
                waiting.setdefault(need, []).append(lane)
                break
            done[task] = True
            order.append(task)
            if task in waiting:
                ready.extend(waiting.pop(task))
            task += 1
        position[lane] = task
    if len(order) < len(tasks):
        raise ValueError(_stuck(position, lane_start))
    return order


def _stuck(position: list[int], lane_start: list[int]) -> str:
    lanes = [k for k, at in enumerate(position) if at < lane_start[k + 1]]
    first = lanes[0]
    return (
        f"schedule: lanes {', '.join(map(str, lanes[:8]))} wait for one another for ever (lane {first} at its task "
        f"{position[first] - lane_start[first]}); write an order in which each task follows its inputs"
    )
