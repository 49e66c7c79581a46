"""The small problems that every kind of problem brings along, and what enumeration finds in them."""

from functools import cache

import numpy as np

from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import problem_kinds

MOST_POINTS = 10_000
KINDS = sorted(problem_kinds())


@cache
def _all():
    return {(kind, name): problem for kind in KINDS for name, problem in problem_kinds()[kind].examples().items()}


EXAMPLES = sorted(_all())


def example(key):
    return _all()[key]


@cache
def points_of(key):
    """Every point of an example, as rows and as a set."""
    rows = np.concatenate(list(example(key).every()))
    return rows, {row.tobytes() for row in rows}


@cache
def optimum(key, count=1):
    """What enumeration proves."""
    found = method_of("exhaustive").solve(example(key), budget_evaluations=MOST_POINTS, count=count)
    assert found.proven
    return found
