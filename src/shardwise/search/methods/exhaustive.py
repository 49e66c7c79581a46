"""Every assignment there is: the referee on small spaces."""

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, islice, product

import numpy as np

from shardwise.search.methods._contract import Method
from shardwise.search.methods._meter import Meter
from shardwise.search.methods._problem import Ints, StageProblem

CHUNK = 8_192


def _splits(problem: StageProblem) -> Iterator[Ints]:
    fewest = problem.fewest
    free = problem.layers - int(fewest.sum())
    for inner in combinations_with_replacement(range(free + 1), problem.stages - 1):
        yield np.diff([0, *inner, free]) + fewest


def _choices(problem: StageProblem) -> Iterator[Ints]:
    """Every way to give each stage an option, so that each group takes its number of stages."""
    own = [np.flatnonzero(problem.option_group == group) for group in range(len(problem.group_stages))]
    stages = range(problem.stages)
    for firsts in combinations(stages, problem.group_stages[0]):
        taken = set(firsts)
        for choice in product(*(own[0] if stage in taken else own[-1] for stage in stages)):
            yield np.array(choice, dtype=np.int64)


def _look(meter: Meter, _seed: int) -> None:
    points = ((layers, options) for options in _choices(meter.problem) for layers in _splits(meter.problem))
    while meter.left and (chunk := list(islice(points, min(CHUNK, meter.left)))):
        meter.price(np.array([layers for layers, _ in chunk]), np.array([options for _, options in chunk]))
    meter.proven = meter.evaluations == meter.problem.points


METHOD = Method(name="exhaustive", summary="every assignment; for small spaces", exact=True, look=_look)
