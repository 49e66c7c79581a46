"""Zeroth-order: evolution. Only prices are used, no derivative and nothing about the problem's inside.

The best of parents and children are the next parents, twins dropped; how often a child differs in more than one place
grows while nothing gets better and shrinks when something does. Every life begins with softened maxima as its price: a
true maximum does not fall before the last of several equals at the top has, and each of those moves alone may cost
something, so that one by one they look like mistakes. Once stuck there, the life goes on with the true price; once
stuck again, a new one starts.
"""

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.methods._contract import Method
from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import Problem

PARENTS = 4
CHILDREN = 16
STUCK = 60
"""generations without anything better before the price, or the life, changes"""
LEAST_MORE, MOST_MORE = 0.3, 0.85
SOFT, TRUE = 1, 0


def _look(meter: Meter, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.vstack([meter.problem.default[None], meter.problem.starts(PARENTS - 1, rng)])
    while meter.left:
        for price in (SOFT, TRUE):
            if meter.left:
                points = _life(meter, rng, points, price)
        points = meter.problem.starts(PARENTS, rng)


def _life(meter: Meter, rng: np.random.Generator, points: Ints, price: int) -> Ints:
    """Points after many generations; `price`: which of the meter's two counts."""
    points = points[: meter.left]
    cost = meter.price(points)[price]
    more, stuck, best = LEAST_MORE, 0, float(cost.min())
    while meter.left and stuck < STUCK:
        parents = rng.integers(len(cost), size=min(CHILDREN, meter.left))
        young = changed(meter.problem, points[parents], rng, more)
        cost = np.concatenate([cost, meter.price(young)[price]])
        points = np.concatenate([points, young])
        kept = _fittest(cost, points)
        cost, points = cost[kept], points[kept]
        stuck = 0 if cost[0] < best else stuck + 1
        more = LEAST_MORE if stuck == 0 else min(more * 1.03, MOST_MORE)
        best = min(best, float(cost[0]))
    return points


def changed(problem: Problem, points: Ints, rng: np.random.Generator, more: float) -> Ints:
    """Each point after one random move, and with chance `more` another, and so on."""
    points, busy = points.copy(), np.arange(len(points))
    while len(busy):
        move = rng.integers(len(problem.moves), size=len(busy))
        one, other = (rng.integers(problem.positions, size=len(busy)) for _ in range(2))
        points[busy] = problem.moved(points[busy], move, one, other)
        busy = busy[rng.random(len(busy)) < more]
    return points


def _fittest(cost: Floats, points: Ints) -> Ints:
    _, alone = np.unique(points, axis=0, return_index=True)
    return np.asarray(alone[np.argsort(cost[alone], kind="stable")][:PARENTS])


METHOD = Method(name="zeroth", title="evolution", summary="only prices are used, seeded", exact=False, look=_look)
