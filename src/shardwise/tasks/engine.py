"""The core: tasks on lanes, each lane one after another, a task no sooner than what it needs. Nothing knows training.

Start of a task = the latest of: the end of the task before it on its lane, its release, and the end of everything it
needs plus that need's delay. That is a longest path, so one pass over the tasks in any order that respects the needs
is exact; the pass finds that order itself and `again` repeats it for many steps at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


@dataclass(frozen=True)
class EngineRun:
    start: Floats
    end: Floats
    order: list[int]
    """tasks in the order the pass met them: everything a task waits for comes before it"""


def run(tasks: Tasks, duration: Floats, delay: Floats, release: Floats) -> EngineRun:
    """`delay` is per need; `duration` and `release` per task."""
    lane_start, needs, need_task = tasks.lane_start.tolist(), tasks.need_start.tolist(), tasks.need_task.tolist()
    length, late, begin = duration.tolist(), delay.tolist(), release.tolist()
    count, lanes = len(length), len(lane_start) - 1
    start, end = [0.0] * count, [-1.0] * count
    position, clock = lane_start[:-1], [0.0] * lanes
    waiting: dict[int, list[int]] = {}
    order: list[int] = []
    ready = list(range(lanes - 1, -1, -1))
    while ready:
        lane = ready.pop()
        task, stop, now = position[lane], lane_start[lane + 1], clock[lane]
        while task < stop:
            at = begin[task]
            if at < now:
                at = now
            for need in range(needs[task], needs[task + 1]):
                done = end[need_task[need]]
                if done < 0.0:
                    waiting.setdefault(need_task[need], []).append(lane)
                    break
                done += late[need]
                if done > at:
                    at = done
            else:
                start[task] = at
                now = at + length[task]
                end[task] = now
                order.append(task)
                if task in waiting:
                    ready.extend(waiting.pop(task))
                task += 1
                continue
            break
        position[lane], clock[lane] = task, now
    if len(order) < count:
        raise ValueError(_stuck(position, lane_start))
    return EngineRun(np.array(start), np.array(end), order)


def again(tasks: Tasks, order: list[int], duration: Floats, delay: Floats, release: Floats) -> Floats:
    """End of every task for many steps at once: `duration` has one row per task and one column per step."""
    end = np.empty_like(duration)
    before = np.arange(-1, len(tasks) - 1)
    before[tasks.lane_start[:-1][np.diff(tasks.lane_start) > 0]] = -1
    previous, needs, need_task = before.tolist(), tasks.need_start.tolist(), tasks.need_task.tolist()
    late, begin = delay.tolist(), release.tolist()
    for task in order:
        at = np.full(duration.shape[1], begin[task]) if begin[task] > 0 or previous[task] < 0 else end[previous[task]]
        if begin[task] > 0 and previous[task] >= 0:
            at = np.maximum(at, end[previous[task]])
        for need in range(needs[task], needs[task + 1]):
            at = np.maximum(at, end[need_task[need]] + late[need])
        np.add(at, duration[task], out=end[task])
    return end


def _stuck(position: list[int], lane_start: list[int]) -> str:
    lanes = [k for k, at in enumerate(position) if at < lane_start[k + 1]]
    first = lanes[0]
    return (
        f"schedule: lanes {', '.join(map(str, lanes[:8]))} wait for one another for ever (lane {first} at its task "
        f"{position[first] - lane_start[first]}); write an order in which what is needed comes first"
    )
