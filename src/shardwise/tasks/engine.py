"""The core: tasks on lanes, each lane one after another, a task no sooner than what it needs. Nothing knows training.

Start of a task = the latest of: the end of the task before it on its lane, its release, and the end of everything it
needs plus that need's delay. That is a longest path, so one pass over the tasks in any order that respects the needs
is exact. Tasks find such an order once and keep it, however often they are timed; `again` times many steps at once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    order = tasks.order
    late = np.append(delay, 0.0)
    begin, length = release[order.task].tolist(), duration[order.task].tolist()
    needs = [(places.tolist(), late[which].tolist()) for places, which in zip(order.needs, order.which, strict=True)]
    starts, ends = _passed(order.before.tolist(), begin, length, needs)
    start, end = np.empty(len(tasks)), np.empty(len(tasks))
    start[order.task], end[order.task] = starts, ends[1:]
    return EngineRun(start, end)


def _passed(
    before: list[int], begin: list[float], length: list[float], needs: list[tuple[list[int], list[float]]]
) -> tuple[list[float], list[float]]:
    """(starts, ends) in order; the ends behind that of what there is not."""
    starts: list[float] = []
    ends = [0.0]
    if len(needs) == 1:  # of nearly all schedules
        [(sources, late)] = needs
        for previous, at, took, source, wait in zip(before, begin, length, sources, late, strict=True):
            done = ends[previous]
            if done > at:
                at = done
            done = ends[source] + wait
            if done > at:
                at = done
            starts.append(at)
            ends.append(at + took)
        return starts, ends
    for task, (previous, at, took) in enumerate(zip(before, begin, length, strict=True)):
        at = max(at, ends[previous])
        for sources, late in needs:
            at = max(at, ends[sources[task]] + late[task])
        starts.append(at)
        ends.append(at + took)
    return starts, ends


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
    lane_start, needs, need_task = tasks.lane_start.tolist(), tasks.need_start.tolist(), tasks.need_task.tolist()
    count, lanes = len(tasks), len(lane_start) - 1
    done, position = [False] * count, lane_start[:-1]
    waiting: dict[int, list[int]] = {}
    order: list[int] = []
    ready = list(range(lanes - 1, -1, -1))
    while ready:
        lane = ready.pop()
        task, stop = position[lane], lane_start[lane + 1]
        while task < stop:
            for need in need_task[needs[task] : needs[task + 1]]:
                if not done[need]:
                    waiting.setdefault(need, []).append(lane)
                    break
            else:
                done[task] = True
                order.append(task)
                if task in waiting:
                    ready.extend(waiting.pop(task))
                task += 1
                continue
            break
        position[lane] = task
    if len(order) < count:
        raise ValueError(_stuck(position, lane_start))
    return order


def _stuck(position: list[int], lane_start: list[int]) -> str:
    lanes = [k for k, at in enumerate(position) if at < lane_start[k + 1]]
    first = lanes[0]
    return (
        f"schedule: lanes {', '.join(map(str, lanes[:8]))} wait for one another for ever (lane {first} at its task "
        f"{position[first] - lane_start[first]}); write an order in which what is needed comes first"
    )
