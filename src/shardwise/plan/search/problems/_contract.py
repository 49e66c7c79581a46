"""What a problem is to the methods: points they may price, moves between them, and the forms a proof can use.

A point is one row of whole numbers; what they mean is the problem's own business. Every method takes every problem;
where a form is missing the problem says why, in words.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np

from shardwise.arrays import Floats, Ints

SHARPNESS = 8.0
"""how sharp a softened maximum is: of n equal values it is within 1/8 of the true one, whatever n"""


BLOCK = 16_384
"""points that are enumerated, and priced, at once"""

NOTHING_FITS = "no point fits"
"""the answer of a program that has no solution, which is a proof"""


@dataclass(frozen=True)
class PointPrices:
    seconds: Floats
    """the objective"""
    over: Floats
    """by how much a point breaks a limit, as a share of it; 0: it may be used"""
    guide: Floats
    """the objective with its maxima softened: it falls already when one of several equals at the top does"""


@dataclass(frozen=True)
class IntegerProgram:
    """An integer program: least cost . x with low <= rows . x <= high."""

    cost: Floats
    whole: Ints
    """1 where a variable is a whole number"""
    least: Floats
    most: Floats
    rows: Ints
    columns: Ints
    values: Floats
    low: Floats
    high: Floats
    point: Callable[[Floats], Ints]
    """variables -> point"""
    seconds: Callable[[float], float]
    """a bound on the program's cost -> a bound on the objective"""
    answer: Callable[[Ints], Ints] | None = None
    """point -> the variables that are 1 wherever the answer is the same; none: the next best cannot be asked for"""


@dataclass(frozen=True)
class StageChain:
    """A problem that falls apart into stages in a row once its slowest stage is bounded."""

    seconds: Floats
    """options x stages x first layer x end; infinite where it does not fit"""
    option_group: Ints
    group_stages: tuple[int, ...]
    once_s: Floats
    """by option"""
    step_s: Callable[[float, float, float], float]
    """(slowest stage, sum of stages, once a step) -> objective; grows with each"""


@dataclass(frozen=True)
class Alternative:
    """One of several problems, any of which may hold the best point."""

    least_s: float
    """no point of it costs less"""
    chain: Callable[[], StageChain | None]
    """made when it is needed; None: it has one point"""
    point: Callable[[Ints], Ints]
    """layers and options of its stages -> point of the whole; nothing -> the one point"""
    inner: Callable[[Ints], Ints | None]
    """the other way round; None: the point is another alternative's"""


@dataclass(frozen=True)
class EitherOf:
    """A problem that is one of several, each of which falls apart on its own."""

    ways: tuple[Alternative, ...]
    """the least bound first"""
    rest_s: float
    """no point of what was left out costs less; infinite: nothing was"""


@dataclass(frozen=True)
class ChoicePath:
    """A problem that is a row of choices: its price is a sum, of each choice and of each choice with the one before."""

    own: tuple[Floats, ...]
    """by place: seconds of each choice"""
    between: tuple[Floats, ...]
    """by place after the first: choices before x choices here"""
    held: tuple[Floats, ...]
    """by place: what each choice takes of something limited"""
    most: float
    """of it; infinite: no limit"""
    shown: tuple[bool, ...]
    """places that make an answer another one"""


@dataclass(frozen=True)
class Subsets:
    """A problem whose objective grows with the worst of equal boxes and the worst of equal blocks of boxes, each of
    them a function of what lies inside alone."""

    items: int
    per_box: int
    boxes_per_block: int
    blocks: int
    box_cost: Callable[[tuple[int, ...]], tuple[float, ...]]
    block_cost: Callable[[tuple[int, ...]], tuple[float, ...]]
    seconds: Callable[[tuple[float, ...], tuple[float, ...]], float]
    """(worst box in each respect, worst block) -> objective"""


@dataclass(frozen=True)
class Signals:
    """Figures around 0, points x positions x figures."""

    first: Floats
    """for the first position of a move"""
    second: Callable[[Ints], Floats]
    """for the second, the first being chosen"""

    @classmethod
    def beside_first(cls, own: Floats) -> "Signals":
        """The same figures for both; for the second also how its first figure differs from the chosen one's."""

        def second(chosen: Ints) -> Floats:
            base = np.take_along_axis(own[:, :, 0], chosen[:, None], axis=1)
            return np.concatenate([own, (own[:, :, 0] - base)[:, :, None]], axis=2)

        return cls(own, second)


class Problem(Protocol):
    @property
    def default(self) -> Ints:
        """The point one has without a search."""

    @property
    def points(self) -> int:
        """How many there are, usable or not."""

    @property
    def bound_s(self) -> float:
        """No point costs less; 0 where nothing is known."""

    @property
    def positions(self) -> int:
        """Places a move names two of."""

    @property
    def moves(self) -> tuple[str, ...]:
        """Kinds of moves by name."""

    def price(self, points: Ints) -> PointPrices: ...

    def starts(self, size: int, rng: np.random.Generator) -> Ints:
        """Random points."""

    def moved(self, points: Ints, move: Ints, one: Ints, other: Ints) -> Ints:
        """Each point after one move between two positions; unchanged where that move cannot be."""

    def signals(self, points: Ints) -> "Signals":
        """How each position of each point stands: what a learner may look at."""

    def every(self) -> Iterator[Ints]:
        """All points, once each, in blocks of rows."""

    def answer(self, points: Ints) -> Ints:
        """What of each point makes it another answer than the next: all of it, or the part a user is told."""

    def decomposition(self) -> StageChain | ChoicePath | Subsets | EitherOf | str:
        """What dynamic programming uses, or why there is nothing."""

    def program(self, best_s: float) -> IntegerProgram | str:
        """What integer programming solves, or why there is none; points dearer than `best_s` may be left out."""


class TooManyBranches(Exception):
    """A walk with bounds gave up: what it has not looked at may hold the best point."""


@runtime_checkable
class Bounded(Protocol):
    """A problem whose points can be walked through without those that a bound answers for."""

    def every_below(self, cutoff: Callable[[], float]) -> Iterator[Ints]:
        """Points that may cost less than the cutoff, which falls on the way; `TooManyBranches` where it gives up."""


def in_blocks(points: Iterable[Ints]) -> Iterator[Ints]:
    """Points one by one as blocks of rows."""
    left = iter(points)
    while block := list(islice(left, BLOCK)):
        yield np.array(block)


def soft_max(values: Floats) -> Floats:
    """The power mean over the last axis, with a power at which n equal values and one alone differ by 1/8 at most."""
    count = values.shape[-1]
    top = values.max(axis=-1)
    if count < 2:
        return np.asarray(top)
    power = SHARPNESS * np.log(count)
    safe = np.where(top > 0, top, 1.0)[..., None]
    return np.asarray(top * np.mean((values / safe) ** power, axis=-1) ** (1.0 / power))
