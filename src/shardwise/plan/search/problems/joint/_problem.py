"""Policy, stages, recompute and parts of a cluster as one problem.

A *line* is everything of a plan but its stages: a policy with its ZeRO group and offload, a strategy, the order of the
parts of a mixed cluster. With a line come the stages it may have (`StageProblem`): layers of each stage, and how much
of them recomputes where memory asks for it. A point is the number of its line, then the layers of each stage. Lines
whose bound cannot win are never built. A line may also stand for one policy exactly as it was planned.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import comb

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import (
    Alternative,
    EitherOf,
    IntegerProgram,
    PointPrices,
    Signals,
    StageChain,
    in_blocks,
)
from shardwise.plan.search.problems.joint._walk import walk_below
from shardwise.plan.search.problems.stages import StageAssignment, StageProblem
from shardwise.spec.policy import Policy
from shardwise.step.estimate.synced import SyncChoice

NEAR = 64
"""lines, those with the least bounds, that moves and random starts go to"""


@dataclass
class Line:
    policy: Policy
    """of a mixed cluster: of its first part"""
    least_s: float
    """no stages make its objective less"""
    build: Callable[[], StageProblem] | None
    """its stages, worked out when they are needed; None: it is taken as planned"""
    pp: int = 0
    """stages whose layers are open"""
    layers: int = 0
    """to deal out among them"""
    step_s: float = np.inf
    """as planned"""
    weight: float = 1.0
    """objective of a second of its step: more steps to the same loss, or dollars"""
    sync: SyncChoice | None = None
    parts: tuple[str, ...] = ()
    """of a mixed cluster, in the order of the pipeline"""
    what: str = ""
    """in words, where it is no plain policy of one cluster"""
    placed_s: float = np.inf
    """nor do any stages wherever its nodes lie, where that was looked at"""
    own_tp: Callable[[], StageProblem | None] | None = field(default=None, repr=False)
    """its stages with every tensor parallelism that each of them may have; None: there is one"""
    unlike: bool = False
    """its stages have that, chosen: the policy is of the first"""
    _built: StageProblem | None = field(default=None, repr=False)

    @property
    def stages(self) -> StageProblem:
        if self._built is None:
            if self.build is None:
                raise RuntimeError("a line that is taken as planned has no stages to choose")
            self._built = self.build()
        return self._built

    @property
    def points(self) -> int:
        """Ways to deal out the layers: only the first stage and the last may be without."""
        free = self.layers - max(self.pp - 2, 0)
        return comb(free + self.pp - 1, self.pp - 1) if self.pp > 1 else 1

    @cached_property
    def options(self) -> Ints:
        """Of each stage: the one it has on its part."""
        return np.array(self.stages.even[1], dtype=np.int64)


@dataclass(frozen=True)
class JointProblem:
    lines: tuple[Line, ...]
    """the first is what one has without a search; the others by their bounds"""
    rest_s: float
    """no line that was left out costs less; infinite: none was"""
    placed_s: float = np.inf
    """no line costs less wherever its nodes lie, where that was looked at"""

    @cached_property
    def width(self) -> int:
        """Stages of the longest pipeline."""
        return max(line.pp for line in self.lines)

    @property
    def default(self) -> Ints:
        return self._first_point(0)

    @cached_property
    def points(self) -> int:
        return sum(line.points for line in self.lines)

    @cached_property
    def bound_s(self) -> float:
        return min(self.rest_s, *(line.least_s for line in self.lines))

    @property
    def positions(self) -> int:
        return max(self.width, 2)

    @property
    def moves(self) -> tuple[str, ...]:
        layers = ("layer", "half its layers") if self.width > 1 else ()
        return (*layers, *(("line",) if len(self.lines) > 1 or not layers else ()))

    def price(self, points: Ints) -> PointPrices:
        found = PointPrices(*(np.zeros(len(points)) for _ in range(3)))
        for number, rows in self._by_line(points):
            line = self.lines[number]
            if line.build is None:
                found.seconds[rows] = found.guide[rows] = line.weight * line.step_s
                continue
            layers = points[rows, 1 : 1 + line.pp]
            priced = line.stages.price(np.hstack([layers, np.tile(line.options, (len(rows), 1))]))
            found.seconds[rows], found.over[rows] = line.weight * priced.seconds, priced.over
            found.guide[rows] = line.weight * priced.guide
        return found

    def line_of(self, point: Ints) -> Line:
        return self.lines[int(point[0])]

    def assignment(self, point: Ints) -> StageAssignment | None:
        """The stages of a point; None where its line is taken as planned."""
        line = self.line_of(point)
        if line.build is None:
            return None
        return line.stages.assignment(np.concatenate([point[1 : 1 + line.pp], line.options]))

    def starts(self, size: int, rng: np.random.Generator) -> Ints:
        numbers = rng.integers(min(len(self.lines), NEAR), size=size)
        points = np.zeros((size, 1 + self.width), dtype=np.int64)
        points[:, 0] = numbers
        for number, rows in self._by_line(points):
            line = self.lines[number]
            if line.build is not None:
                points[rows, 1 : 1 + line.pp] = line.stages.starts(len(rows), rng)[:, : line.pp]
        return points

    def moved(self, points: Ints, move: Ints, one: Ints, other: Ints) -> Ints:
        """A layer goes from one stage to another, or half of all it may give; or another line, which keeps the layers
        where it has as many stages and else begins with its own."""
        points, near = points.copy(), min(len(self.lines), NEAR)
        of_line = move == len(self.moves) - 1 if "line" in self.moves else np.zeros(len(points), dtype=np.bool_)
        for number, rows in self._by_line(points):
            line = self.lines[number]
            mine = rows[~of_line[rows]]
            if line.build is None or not len(mine):
                continue
            inside = mine[(one[mine] < line.pp) & (other[mine] < line.pp) & (one[mine] != other[mine])]
            spare = points[inside, 1 + one[inside]] - line.stages.fewest[one[inside]]
            given = np.where(move[inside] == 1, (spare + 1) // 2, np.minimum(spare, 1))
            points[inside, 1 + one[inside]] -= given
            points[inside, 1 + other[inside]] += given
        for row in np.flatnonzero(of_line) if near > 1 else ():
            further = 1 + int(one[row] * self.positions + other[row]) % (near - 1)
            target = (int(points[row, 0]) % near + further) % near
            points[row] = self._taken_over(points[row], target)
        return points

    def signals(self, points: Ints) -> Signals:
        """Of each stage: its time against the mean, its memory, its layers against the mean; nothing where there is no
        stage. Of the second also how its time differs from the first one's."""
        own = np.zeros((len(points), self.positions, 3))
        for number, rows in self._by_line(points):
            line = self.lines[number]
            if line.build is not None and line.pp > 0:
                layers = points[rows, 1 : 1 + line.pp]
                seen = line.stages.signals(np.hstack([layers, np.tile(line.options, (len(rows), 1))]))
                own[rows, : line.pp] = seen.first[:, :, :3]
        return Signals.beside_first(own)

    def every(self) -> Iterator[Ints]:
        return in_blocks(self._each())

    def every_below(self, cutoff: Callable[[], float]) -> Iterator[Ints]:
        return walk_below(self, cutoff)

    def answer(self, points: Ints) -> Ints:
        return points

    def decomposition(self) -> EitherOf:
        order = sorted(range(len(self.lines)), key=lambda number: self.lines[number].least_s)
        return EitherOf(tuple(self._alternative(number) for number in order), self.rest_s)

    def program(self, best_s: float) -> IntegerProgram | str:
        from shardwise.plan.search.problems.joint._program import joint_program

        return joint_program(self, best_s)

    def lifted(self, number: int, inner: Ints) -> Ints:
        """Layers, and perhaps options, of a line's stages -> point."""
        point = np.zeros(1 + self.width, dtype=np.int64)
        point[0] = number
        if len(inner):
            stages = self.lines[number].pp
            point[1 : 1 + stages] = inner[:stages]
        return point

    def _alternative(self, number: int) -> Alternative:
        line = self.lines[number]

        def chain() -> StageChain | None:
            if line.build is None:
                return None
            own = line.stages.decomposition()
            return StageChain(
                own.seconds, own.option_group, own.group_stages, own.once_s,
                lambda slowest, total, once: line.weight * own.step_s(slowest, total, once),
            )  # fmt: skip

        def inner(point: Ints) -> Ints | None:
            if point[0] != number or line.build is None:
                return None
            return np.concatenate([point[1 : 1 + line.pp], line.options])

        return Alternative(line.least_s, chain, lambda layers: self.lifted(number, layers), inner)

    def _by_line(self, points: Ints) -> Iterator[tuple[int, Ints]]:
        for number in np.unique(points[:, 0]):
            yield int(number), np.flatnonzero(points[:, 0] == number)

    def _first_point(self, number: int) -> Ints:
        line = self.lines[number]
        return self.lifted(number, np.array(line.stages.even[0] if line.build else (), dtype=np.int64))

    def _taken_over(self, point: Ints, target: int) -> Ints:
        was, line = self.line_of(point), self.lines[target]
        if line.build is None or was.build is None or was.pp != line.pp:
            return self._first_point(target)
        return self.lifted(target, point[1 : 1 + line.pp])

    def _each(self) -> Iterator[Ints]:
        for number, line in enumerate(self.lines):
            if line.build is None:
                yield self.lifted(number, np.zeros(0, dtype=np.int64))
                continue
            for layers in line.stages.layer_splits():
                yield self.lifted(number, layers)
