"""The stages of a pipeline: what each holds and where it runs.

A stage takes one option (a group of GPUs and a tensor-parallel degree on it) and a run of layers; together they settle
how many of those layers must recompute, since recomputing more than memory asks for only costs time. The step is the
closed form's: (m - k) times the slowest stage plus k times all of them, what happens once, and the stack's allowance.
A point is the layers of each stage, then the option of each stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement, product
from math import comb

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import (
    IntegerProgram,
    PointPrices,
    Signals,
    StageChain,
    in_blocks,
    soft_max,
)
from shardwise.spec.policy import Policy

MOVES = ("layer", "swap GPUs", "swap places", "option")


@dataclass(frozen=True)
class StageOption:
    """One way to run a stage."""

    group: int
    """which group of GPUs"""
    cluster: str
    policy: Policy
    """degrees and micro-batch of a stage that takes this option; pp is the whole pipeline's"""
    limit_bytes: float
    once_s: float
    """once a step: transfers around the steady phase, synchronisation, optimizer"""


@dataclass(frozen=True)
class StageAssignment:
    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    """layers of each stage that are computed again in the backward"""
    options: tuple[int, ...]
    """which option each stage takes"""
    stage_s: tuple[float, ...]
    """one micro-batch, forward and backward"""
    peak_bytes: tuple[float, ...]
    mixes: tuple[tuple[str, str], ...]
    """of each stage: how much the other layers recompute, and how much those do"""


@dataclass(frozen=True)
class StageProblem:
    options: tuple[StageOption, ...]
    group_stages: tuple[int, ...]
    """how many stages each group of GPUs has to take; one or two groups"""
    pattern: tuple[int, ...]
    """the kind of each layer: runs with as many layers of each kind cost the same"""
    micro_batches: float
    share: float
    """k: idle time of the schedule over pp - 1, in micro-batches"""
    stretch: float
    """the stack's allowance for waiting, as a factor"""
    overhead_s: float
    seconds: Floats
    """options x stages x first layer x end: one micro-batch; infinite where memory does not suffice"""
    any_seconds: Floats
    """the same, also where memory does not suffice"""
    recomputed: Floats
    bytes: Floats
    even: tuple[tuple[int, ...], tuple[int, ...]]
    """layers as the stack deals them out, and the first option of each group, groups in order"""
    mixes: tuple[tuple[str, str], ...] = (("none", "full"),)
    """ways to recompute: of the layers that need not, and of those that memory asks more of"""
    mix: Ints | None = None
    """options x stages x first layer x end: which of them is the best; None: there is one"""
    slowest_least_s: float = 0.0
    """what paces the pipeline at least, such as a link between two of its stages"""

    @property
    def stages(self) -> int:
        return int(self.seconds.shape[1])

    @property
    def layers(self) -> int:
        return len(self.pattern)

    @cached_property
    def option_group(self) -> Ints:
        return np.array([option.group for option in self.options], dtype=np.int64)

    @cached_property
    def once_s(self) -> Floats:
        return np.array([option.once_s for option in self.options])

    @cached_property
    def fewest(self) -> Ints:
        """Layers a stage holds at least: only the ends, with the embedding or the head, may be without."""
        least = np.ones(self.stages, dtype=np.int64)
        least[[0, -1]] = 0 if self.stages > 1 else self.layers
        return least

    @property
    def default(self) -> Ints:
        return np.array([*self.even[0], *self.even[1]], dtype=np.int64)

    @property
    def positions(self) -> int:
        return self.stages

    @property
    def moves(self) -> tuple[str, ...]:
        """With one option there is nothing but layers to move."""
        return MOVES[:1] if len(self.options) == 1 else MOVES

    @property
    def points(self) -> int:
        """Assignments there are, fitting or not."""
        free = self.layers - int(self.fewest.sum())
        count = comb(free + self.stages - 1, self.stages - 1)
        if len(self.group_stages) > 1:
            count *= comb(self.stages, self.group_stages[0])
        for group, stages in enumerate(self.group_stages):
            count *= int((self.option_group == group).sum()) ** stages
        return count

    def step_s(self, slowest: float, total: float, once: float) -> float:
        """The step whose slowest stage, sum of stages and once-a-step part are these; bounds give a bound."""
        return float(self._steps(np.asarray(slowest), np.asarray(total), np.asarray(once)))

    @cached_property
    def bound_s(self) -> float:
        """Every layer at the best pace any run of layers has, spread over all stages without a rest."""
        count = np.arange(self.layers + 1)
        length = np.maximum(count[None, :] - count[:, None], 0)
        held = np.where(length > 0, self.seconds, np.inf) / np.maximum(length, 1)
        pace = float(held.min())
        total = pace * self.layers if np.isfinite(pace) else 0.0
        return self.step_s(total / self.stages, total, float(self.once_s.min()))

    def price(self, points: Ints) -> PointPrices:
        """A stage over memory adds what it needs beyond its limit, as a share of it; one without a layer adds 1."""
        layers, options = points[:, : self.stages], points[:, self.stages :]
        at = self._at(layers, options)
        stage = self.any_seconds[at]
        once, total = self.once_s[options].max(axis=1), stage.sum(axis=1)
        limit = np.array([option.limit_bytes for option in self.options])[options]
        over = np.maximum(self.bytes[at] / limit - 1.0, 0.0)
        short = ~np.isfinite(self.seconds[at])
        empty = (layers == 0) & (self.fewest > 0)
        # what a rounding hides must not count as fitting
        broken = np.where(short, np.maximum(over, 1e-9), 0.0) + empty
        seconds = self._steps(stage.max(axis=1), total, once)
        return PointPrices(seconds, broken.sum(axis=1), self._steps(soft_max(stage), total, once))

    def _steps(self, slowest: Floats, total: Floats, once: Floats) -> Floats:
        pace = np.maximum(slowest, self.slowest_least_s)
        busy = (self.micro_batches - self.share) * pace + self.share * total + once
        return self.stretch * busy + self.overhead_s

    def assignment(self, point: Ints) -> StageAssignment:
        layers, options = point[: self.stages], point[self.stages :]
        at = self._at(layers[None], options[None])
        return StageAssignment(
            layers=tuple(layers.tolist()),
            recomputed=tuple(self.recomputed[at][0].astype(int).tolist()),
            options=tuple(options.tolist()),
            stage_s=tuple(self.any_seconds[at][0].tolist()),
            peak_bytes=tuple(self.bytes[at][0].tolist()),
            mixes=tuple(self.mixes[i] for i in (np.zeros(self.stages, int) if self.mix is None else self.mix[at][0])),
        )

    def starts(self, size: int, rng: np.random.Generator) -> Ints:
        free = self.layers - int(self.fewest.sum())
        weights = rng.dirichlet(np.full(self.stages, 2.0), size)
        edges = np.rint(np.cumsum(weights, axis=1) * free).astype(np.int64)
        edges[:, -1] = free
        layers = np.diff(edges, axis=1, prepend=0) + self.fewest
        groups = np.repeat(np.arange(len(self.group_stages)), self.group_stages)
        groups = rng.permuted(np.tile(groups, (size, 1)), axis=1)
        drawn = np.stack([rng.choice(own, groups.shape) for own in self._own])
        return np.hstack([layers, np.take_along_axis(drawn, groups[None], axis=0)[0]])

    def moved(self, points: Ints, move: Ints, one: Ints, other: Ints) -> Ints:
        """A layer goes from one stage to another, or two stages swap their GPUs, with their layers or without, or one
        takes an option of its group that the number of the other picks."""
        points, rows, stages = points.copy(), np.arange(len(points)), self.stages
        layers, options = points[:, :stages], points[:, stages:]
        giving = rows[(move == 0) & (layers[rows, one] > self.fewest[one])]
        layers[giving, one[giving]] -= 1
        layers[giving, other[giving]] += 1
        swapping = rows[(move == 1) | (move == 2)]
        _swap(options, swapping, one[swapping], other[swapping])
        along = rows[(move == 2) & self._may_trade(layers, one, other)]
        _swap(layers, along, one[along], other[along])
        for group, own in enumerate(self._own):
            mine = rows[(move == 3) & (self.option_group[options[rows, one]] == group)]
            place = np.searchsorted(own, options[mine, one[mine]])
            further = 1 + other[mine] % max(len(own) - 1, 1)
            options[mine, one[mine]] = own[(place + further) % len(own)]
        return points

    @cached_property
    def _own(self) -> list[Ints]:
        """Options of each group."""
        return [np.flatnonzero(self.option_group == group) for group in range(len(self.group_stages))]

    def _may_trade(self, layers: Ints, one: Ints, other: Ints) -> NDArray[np.bool_]:
        rows = np.arange(len(layers))
        return np.asarray((layers[rows, one] >= self.fewest[other]) & (layers[rows, other] >= self.fewest[one]))

    def signals(self, points: Ints) -> Signals:
        """Of each stage: its time, its memory, its layers, and the time it takes for one layer; of the second also how
        its time differs from the first one's."""
        layers, options = points[:, : self.stages], points[:, self.stages :]
        at = self._at(layers, options)
        stage = self.any_seconds[at]
        limit = np.array([option.limit_bytes for option in self.options])[options]
        each = stage / np.maximum(layers, 1)
        own = np.stack([_centred(stage), self.bytes[at] / limit - 1.0, _centred(layers), _centred(each)], axis=2)
        return Signals.beside_first(own)

    def every(self) -> Iterator[Ints]:
        return in_blocks(self._each())

    def answer(self, points: Ints) -> Ints:
        return points

    def _each(self) -> Iterator[Ints]:
        for options in self._choices():
            for layers in self.layer_splits():
                yield np.concatenate([layers, options])

    def layer_splits(self) -> Iterator[Ints]:
        """Every way to deal out the layers."""
        free = self.layers - int(self.fewest.sum())
        for inner in combinations_with_replacement(range(free + 1), self.stages - 1):
            yield np.diff([0, *inner, free]) + self.fewest

    def _choices(self) -> Iterator[Ints]:
        """Every way to give each stage an option, so that each group takes its number of stages."""
        stages = range(self.stages)
        for firsts in combinations(stages, self.group_stages[0]):
            taken = set(firsts)
            for choice in product(*(self._own[0] if stage in taken else self._own[-1] for stage in stages)):
                yield np.array(choice, dtype=np.int64)

    def decomposition(self) -> StageChain:
        return StageChain(self.seconds, self.option_group, self.group_stages, self.once_s, self.step_s)

    def program(self, best_s: float) -> IntegerProgram | str:
        from shardwise.plan.search.problems.stages._program import stage_program

        return stage_program(self, best_s)

    def _at(self, layers: Ints, options: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        end = np.cumsum(layers, axis=1)
        return options, np.broadcast_to(np.arange(self.stages), layers.shape), end - layers, end


def _swap(table: Ints, rows: Ints, one: Ints, other: Ints) -> None:
    table[rows, one], table[rows, other] = table[rows, other], table[rows, one]


def _centred(values: Floats | Ints) -> Floats:
    """Each value against the mean of its row."""
    return np.asarray(values / np.maximum(values.mean(axis=1, keepdims=True), 1e-30) - 1.0)
