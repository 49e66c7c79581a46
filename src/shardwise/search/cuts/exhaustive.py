"""Every assignment of choices: one axis per operation, costs added up by broadcasting."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from shardwise.search.cuts._price import SLACK, Assignment, Problem

MOST_POINTS = 4_000_000

Floats = NDArray[np.float64]


def best(
    problem: Problem, count: int = 1, most_bytes: float = np.inf, most_points: int = MOST_POINTS
) -> list[Assignment]:
    """The `count` best assignments that differ in what is shown, best first."""
    graph = problem.graph
    if graph.points > most_points:
        raise ValueError(
            f"method: {graph.points:,} assignments are too many to enumerate (over {most_points:,}); write --method ip"
        )
    free = [place for place, op in enumerate(graph.ops) if len(op.choices) > 1]
    seconds, held = _tables(problem, free)
    seconds = np.where(held <= most_bytes * SLACK, seconds, np.inf)
    shown = [axis for axis, place in enumerate(free) if graph.ops[place].shown]
    hidden = [axis for axis in range(len(free)) if axis not in shown]
    cuts = [seconds.shape[axis] for axis in shown]
    by_cut = np.moveaxis(seconds, shown, range(len(shown))).reshape(int(np.prod(cuts)), -1)
    inside = by_cut.argmin(axis=1)
    lowest = by_cut[np.arange(len(by_cut)), inside]
    found = []
    for cut in np.argsort(lowest, kind="stable")[:count]:
        if np.isfinite(lowest[cut]):
            full = [0] * len(graph.ops)
            places = [free[axis] for axis in (*shown, *hidden)]
            indices = [*np.unravel_index(cut, cuts), *np.unravel_index(inside[cut], [seconds.shape[a] for a in hidden])]
            for place, index in zip(places, indices, strict=True):
                full[place] = int(index)
            found.append(tuple(full))
    return found


def _tables(problem: Problem, free: list[int]) -> tuple[Floats, Floats]:
    """Seconds and bytes of weights of every assignment."""
    graph = problem.graph
    shape = [len(graph.ops[place].choices) for place in free]
    seconds, held = np.zeros(shape), np.zeros(shape)
    for place in range(len(graph.ops)):
        seconds += _along(np.array(problem.own[place]), [place], free)
        held += _along(np.array(problem.bytes[place]), [place], free)
    for name in graph.tensors:
        places = [graph.producer[name], *(place for place, _ in graph.consumers[name])]
        distinct = sorted(set(places))
        table = np.zeros([len(graph.ops[place].choices) for place in distinct])
        for chosen in product(*(range(size) for size in table.shape)):
            of = dict(zip(distinct, chosen, strict=True))
            table[chosen] = problem.between(name, of[places[0]], [of[place] for place in places[1:]])
        seconds += _along(table, distinct, free)
    return seconds, held


def _along(table: Floats, places: list[int], free: list[int]) -> Floats:
    """A table over some operations (in their order) laid along the axes of all free ones."""
    sizes = dict(zip(places, table.shape, strict=True))
    return table.reshape([sizes.get(place, 1) for place in free])
