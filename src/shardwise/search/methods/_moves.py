"""Random assignments and small changes to them, many at once."""

import numpy as np
from numpy.typing import NDArray

from shardwise.search.methods._problem import Ints, StageProblem


def starts(problem: StageProblem, size: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The even split first, then random ones."""
    fewest = problem.fewest
    free = problem.layers - int(fewest.sum())
    weights = rng.dirichlet(np.full(problem.stages, 2.0), size)
    edges = np.rint(np.cumsum(weights, axis=1) * free).astype(np.int64)
    edges[:, -1] = free
    layers = np.diff(edges, axis=1, prepend=0) + fewest
    groups = np.repeat(np.arange(len(problem.group_stages)), problem.group_stages)
    options = _any_option(problem, rng.permuted(np.tile(groups, (size, 1)), axis=1), rng)
    layers[0], options[0] = problem.even
    return layers, options


def _any_option(problem: StageProblem, groups: Ints, rng: np.random.Generator) -> Ints:
    own = [np.flatnonzero(problem.option_group == group) for group in range(len(problem.group_stages))]
    drawn = np.stack([rng.choice(options, groups.shape) for options in own])
    return np.asarray(np.take_along_axis(drawn, groups[None], axis=0)[0])


def changed(
    problem: StageProblem, layers: Ints, options: Ints, rng: np.random.Generator, more: float
) -> tuple[Ints, Ints]:
    """Each assignment with one change, and with chance `more` another, and so on: a layer moves from one stage to
    another, two stages swap their GPUs (with their layers or without), or a stage takes another option of its group."""
    layers, options = layers.copy(), options.copy()
    if problem.stages == 1 and len(problem.options) == 1:
        return layers, options
    busy = np.arange(len(layers))
    while len(busy):
        one, other = (rng.integers(problem.stages, size=len(busy)) for _ in range(2))
        kind = rng.random(len(busy))
        # with one option there is nothing but layers to move
        moves = (kind < 0.6) | (len(problem.options) == 1)
        moves &= layers[busy, one] > problem.fewest[one]
        rows = busy[moves]
        layers[rows, one[moves]] -= 1
        layers[rows, other[moves]] += 1
        if len(problem.options) > 1:
            swaps = (kind >= 0.6) & (kind < 0.9)
            _swap(options, busy[swaps], one[swaps], other[swaps])
            along = swaps & (kind < 0.8) & _may_trade(problem, layers, busy, one, other)
            _swap(layers, busy[along], one[along], other[along])
            again = kind >= 0.9
            groups = problem.option_group[options[busy[again], one[again]]]
            options[busy[again], one[again]] = _any_option(problem, groups[:, None], rng)[:, 0]
        busy = busy[rng.random(len(busy)) < more]
    return layers, options


def _may_trade(problem: StageProblem, layers: Ints, rows: Ints, one: Ints, other: Ints) -> NDArray[np.bool_]:
    fewest = problem.fewest
    return np.asarray((layers[rows, one] >= fewest[other]) & (layers[rows, other] >= fewest[one]))


def _swap(table: Ints, rows: Ints, one: Ints, other: Ints) -> None:
    table[rows, one], table[rows, other] = table[rows, other], table[rows, one]
