"""Zeroth-order: evolution. Only prices are used, no derivative and nothing about the problem's inside.

The best of parents and children are the next parents, twins dropped; how often a child differs in more than one place
grows while nothing gets better and shrinks when something does. When it stays stuck, it starts over, seeded anew.
"""

import numpy as np

from shardwise.search.methods._contract import Method
from shardwise.search.methods._meter import Meter
from shardwise.search.methods._moves import changed, starts
from shardwise.search.methods._problem import Floats, Ints

PARENTS = 4
CHILDREN = 16
STUCK = 60
"""generations without anything better before a new start"""
LEAST_MORE, MOST_MORE = 0.3, 0.85


def _look(meter: Meter, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while meter.left:
        _life(meter, rng)


def _life(meter: Meter, rng: np.random.Generator) -> None:
    problem = meter.problem
    layers, options = starts(problem, min(PARENTS, meter.left), rng)
    cost = meter.price(layers, options)
    more, stuck, best = LEAST_MORE, 0, float(cost.min())
    while meter.left and stuck < STUCK:
        parents = rng.integers(len(cost), size=min(CHILDREN, meter.left))
        young = changed(problem, layers[parents], options[parents], rng, more)
        cost = np.concatenate([cost, meter.price(*young)])
        layers, options = np.concatenate([layers, young[0]]), np.concatenate([options, young[1]])
        kept = _fittest(cost, layers, options)
        cost, layers, options = cost[kept], layers[kept], options[kept]
        stuck = 0 if cost[0] < best else stuck + 1
        more = LEAST_MORE if stuck == 0 else min(more * 1.03, MOST_MORE)
        best = min(best, float(cost[0]))


def _fittest(cost: Floats, layers: Ints, options: Ints) -> Ints:
    _, alone = np.unique(np.hstack([layers, options]), axis=0, return_index=True)
    return np.asarray(alone[np.argsort(cost[alone], kind="stable")][:PARENTS])


METHOD = Method(name="zeroth", summary="evolution, seeded", exact=False, look=_look)
