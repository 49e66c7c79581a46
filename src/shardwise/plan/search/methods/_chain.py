"""Shortest paths through stages in a row.

For a bound on the slowest stage, and one on what happens once a step, the least sum of stages is a shortest path over
(stage, stages taken from the first group, layers so far). Bounds are tried from the smallest that works upwards until
the bound alone costs more than the best found. Of many that are as good, the one whose stages are most alike is taken.
One evaluation is one path, priced whole. Of several chains, the one with the least bound is looked at first.
"""

from collections.abc import Callable

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import EitherOf, StageChain

DIGITS = 12
"""significant digits to which two bounds are the same bound"""
TIE = 1e-9
"""weight of a stage's square beside its time: decides between equals only"""
EQUAL = 1.0 + 1e-12
"""sums that differ by less are equal: they were added up in another order"""


Lift = Callable[[Ints], Ints]
"""layers and options of a chain -> point of the problem it is a part of"""


def look_at_each(meter: Meter, either: EitherOf) -> None:
    """The chains in the order of their bounds, until the next bound is no better than the best found."""
    if meter.left:
        meter.price(meter.problem.default[None])
    bound, chains = either.rest_s, list[StageChain | None]()
    for place, way in enumerate(either.ways):
        if way.least_s >= meter.best:
            bound = min(bound, way.least_s)
            break
        chain = way.chain() if meter.left else None
        chains.append(chain)
        if meter.left and chain is not None:
            look_along(meter, chain, way.point)
            done = meter.proven
        elif done := meter.left > 0:
            meter.price(way.point(np.zeros(0, dtype=np.int64))[None])
        meter.proven = False
        if not done:
            bound = min(bound, *(left.least_s for left in either.ways[place:]))
            break
    for way, chain in zip(either.ways, chains, strict=False):
        inner = None if chain is None or meter.point is None else way.inner(meter.point)
        if chain is not None and inner is not None:
            _level(meter, chain, inner, way.point)
    meter.bounded(bound)
    meter.proven = bound >= meter.best


def _itself(point: Ints) -> Ints:
    return point


def look_along(meter: Meter, chain: StageChain, lift: Lift | None = None) -> None:
    """`lift`: where the chain is one of several; what is proven is then said of it alone."""
    made = lift or _itself
    loosest = _Paths(chain, np.inf)
    free = loosest.shortest(np.inf)
    if free is None:
        meter.proven = True
        return
    total = float(loosest.stage_s(*free).sum())
    if lift is not None and chain.step_s(total / len(free[0]), total, float(chain.once_s.min())) >= meter.best:
        meter.proven = True
        return
    if not meter.left:
        return
    meter.price(made(np.concatenate(free))[None])
    slowest = loosest.bounds[loosest.first_that_works()]
    if lift is None:
        meter.bounded(chain.step_s(float(slowest), total, float(chain.once_s.min())))
    for once in np.unique(chain.once_s):
        paths = _Paths(chain, float(once))
        if paths.shortest(np.inf) is None:
            continue
        for bound in paths.bounds[paths.first_that_works() :]:
            if chain.step_s(float(bound), total, float(once)) >= meter.best:
                break
            if not meter.left:
                return
            found = paths.shortest(float(bound))
            if found is not None:
                meter.price(made(np.concatenate(found))[None])
    if lift is None and meter.point is not None:
        _level(meter, chain, meter.point, made)
    meter.proven = True


def _level(meter: Meter, chain: StageChain, best: Ints, made: Lift) -> None:
    """Of the points that are as good as the best, the one with the least squares of stages."""
    layers, options = np.split(best, 2)
    paths = _Paths(chain, float(chain.once_s[options].max()))
    found = paths.shortest(float(paths.stage_s(layers, options).max()), tie=TIE)
    if found is not None:
        meter.prefer(made(np.concatenate(found)))


class _Paths:
    """Shortest paths over the options whose once-a-step part is within a limit."""

    def __init__(self, chain: StageChain, once: float) -> None:
        self.chain = chain
        allowed = np.flatnonzero(chain.once_s <= once)
        groups = range(len(chain.group_stages))
        inside = [allowed[chain.option_group[allowed] == group] for group in groups]
        nothing = np.full(chain.seconds.shape[1:], np.inf)
        # of a group's options the fastest is the best for the slowest stage and for the sum alike
        self.seconds = [chain.seconds[own].min(axis=0) if len(own) else nothing for own in inside]
        self.choice = [own[chain.seconds[own].argmin(axis=0)] if len(own) else nothing for own in inside]
        finite = np.concatenate([table[np.isfinite(table)] for table in self.seconds])
        self.bounds = _distinct(finite)
        # with one group there is nothing to count: every stage is its
        self.counted = chain.group_stages[0] if len(groups) > 1 else 0

    def first_that_works(self) -> int:
        low, high = 0, len(self.bounds) - 1
        while low < high:
            middle = (low + high) // 2
            if self.shortest(float(self.bounds[middle])) is None:
                low = middle + 1
            else:
                high = middle
        return low

    def stage_s(self, layers: Ints, options: Ints) -> Floats:
        end = np.cumsum(layers)
        return np.asarray(self.chain.seconds[options, np.arange(len(layers)), end - layers, end])

    def shortest(self, bound: float, tie: float = 0.0) -> tuple[Ints, Ints] | None:
        """Layers and options with the least sum of stages, none of them above the bound; `tie`: weight of a stage's
        square, as a share of the bound."""
        chain, ends, most = self.chain, self.chain.seconds.shape[-1], self.counted
        reached = np.full((most + 1, ends), np.inf)
        reached[0, 0] = 0.0
        came = np.zeros((chain.seconds.shape[1], 2, most + 1, ends), dtype=np.int64)
        group_of = np.zeros((chain.seconds.shape[1], most + 1, ends), dtype=np.int64)
        for stage in range(chain.seconds.shape[1]):
            ways = np.full((2, most + 1, ends), np.inf)
            for group, table in enumerate(self.seconds):
                edge = np.where(table[stage] <= bound, table[stage], np.inf)
                edge = edge * (1.0 + tie * edge / bound) if tie else edge
                through = reached[:, :, None] + edge
                least = through.min(axis=1)
                # of equals the first: then later stages, which hold fewer micro-batches, have the longer runs of layers
                low = (through <= least[:, None] * EQUAL).argmax(axis=1) if tie else through.argmin(axis=1)
                # a stage of the first group moves on to the next row
                rows, source = (slice(1, None), slice(None, -1)) if most and group == 0 else (slice(None), slice(None))
                ways[group, rows], came[stage, group, rows] = least[source], low[source]
            group_of[stage] = ways.argmin(axis=0)
            reached = ways.min(axis=0)
        if not np.isfinite(reached[most, -1]):
            return None
        return self._walk_back(came, group_of)

    def _walk_back(self, came: Ints, group_of: Ints) -> tuple[Ints, Ints]:
        stages = self.chain.seconds.shape[1]
        layers, options = np.zeros(stages, dtype=np.int64), np.zeros(stages, dtype=np.int64)
        taken, end = self.counted, self.chain.seconds.shape[-1] - 1
        for stage in range(stages - 1, -1, -1):
            group = int(group_of[stage, taken, end])
            low = int(came[stage, group, taken, end])
            layers[stage] = end - low
            options[stage] = self.choice[group][stage, low, end]
            taken, end = taken - (self.counted > 0 and group == 0), low
        return layers, options


def _distinct(values: Floats) -> Floats:
    """The values without those that differ by rounding only; of such the largest, so that it still allows them all."""
    ordered = np.unique(values)
    if not len(ordered):
        return ordered
    apart = np.diff(ordered) > ordered[1:] * 10.0**-DIGITS
    return np.asarray(ordered[np.append(apart, True)])
