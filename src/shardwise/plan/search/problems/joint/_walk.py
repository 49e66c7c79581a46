"""Every point of a joint problem that a bound does not answer for: line after line, stage after stage."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import TooManyBranches
from shardwise.plan.search.problems.stages import StageProblem

if TYPE_CHECKING:
    from shardwise.plan.search.problems.joint._problem import JointProblem, Line

BLOCK = 64
"""points handed out at once: the fewer, the sooner what they cost cuts the rest"""
MOST_BRANCHES = 400_000
"""stages given layers, of all lines together, before the walk gives up"""


def walk_below(problem: "JointProblem", cutoff: Callable[[], float]) -> Iterator[Ints]:
    """Lines by their bounds; nothing behind the first whose bound is no better than the cutoff."""
    branches = _Branches()
    yield problem.default[None]
    for number in sorted(range(len(problem.lines)), key=lambda each: problem.lines[each].least_s):
        line = problem.lines[number]
        if line.least_s >= cutoff():
            return
        if line.build is None:
            yield problem.lifted(number, np.zeros(0, dtype=np.int64))[None]
            continue
        held: list[Ints] = []
        for layers in _splits(line, cutoff, branches):
            held.append(problem.lifted(number, np.array(layers, dtype=np.int64)))
            if len(held) == BLOCK:
                yield np.array(held)
                held = []
        if held:
            yield np.array(held)
    if problem.rest_s < cutoff():
        raise TooManyBranches


class _Branches:
    def __init__(self) -> None:
        self.count = 0

    def another(self) -> None:
        self.count += 1
        if self.count > MOST_BRANCHES:
            raise TooManyBranches


def _splits(line: "Line", cutoff: Callable[[], float], branches: _Branches) -> Iterator[tuple[int, ...]]:
    """Layers of each stage, as far as what is left can still come below the cutoff at its best pace."""
    stages = line.stages
    count, whole, pace = stages.stages, stages.layers, _best_pace(stages)
    once = float(stages.once_s[line.options].max())
    # bounds are sums in another order than prices: of equals none may be lost to rounding
    seconds = [stages.seconds[option, stage] for stage, option in enumerate(line.options.tolist())]

    def go(stage: int, begin: int, slowest: float, total: float, taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if stage == count:
            if begin == whole:
                yield taken
            return
        ends = [whole] if stage == count - 1 else range(begin + int(stages.fewest[stage]), whole + 1)
        for end in ends:
            branches.another()
            own = float(seconds[stage][begin, end])
            if not np.isfinite(own):
                continue
            left = (whole - end) * pace
            worst = max(slowest, own, left / (count - stage - 1) if stage < count - 1 else 0.0)
            if line.weight * stages.step_s(worst, total + own + left, once) * (1.0 - 1e-9) >= cutoff():
                continue
            yield from go(stage + 1, end, max(slowest, own), total + own, (*taken, end - begin))

    return go(0, 0, 0.0, 0.0, ())


def _best_pace(stages: StageProblem) -> float:
    """Seconds a layer takes at least, wherever it lies."""
    count = np.arange(stages.layers + 1)
    length = count[None, :] - count[:, None]
    each: Floats = np.where(length > 0, stages.seconds, np.inf) / np.maximum(length, 1)
    least = float(each.min())
    return least if np.isfinite(least) else 0.0
