"""Sets of time, held against counting every moment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise.measured.diagnose.intervals import NOTHING, common, joined, length, minus, union, within

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12)


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, size in spans for moment in range(start, start + size)}


def times(spans: list[tuple[int, int]]):
    start = np.array([float(start) for start, _ in spans])
    return union(start, start + np.array([float(size) for _, size in spans]))


@given(pairs, pairs)
def test_as_counted(first, second):
    a, b = moments(first), moments(second)
    one, other = times(first), times(second)
    assert length(one) == len(a)
    assert length(minus(one, other)) == len(a - b)
    assert length(common(one, other)) == len(a & b)
    assert length(joined(one, other)) == len(a | b)
    assert length(within(one, 5.0, 20.0)) == len(a & set(range(5, 20)))


def test_nothing():
    assert length(NOTHING) == 0
    assert length(minus(NOTHING, times([(1, 2)]))) == 0
