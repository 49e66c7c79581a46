"""Sets of time: sorted intervals that do not touch, joined, cut and measured."""

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats

Times = tuple[Floats, Floats]
"""begins and ends"""
NOTHING: Times = (np.zeros(0), np.zeros(0))


def union(start: Floats, end: Floats) -> Times:
    if not len(start):
        return NOTHING
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    new = np.append(True, start[1:] > reached[:-1])
    last = np.append(np.flatnonzero(new)[1:] - 1, len(start) - 1)
    return start[new], reached[last]


def joined(*sets: Times) -> Times:
    return union(np.concatenate([each[0] for each in sets]), np.concatenate([each[1] for each in sets]))


def within(times: Times, begin: float, end: float) -> Times:
    start, stop = np.clip(times[0], begin, end), np.clip(times[1], begin, end)
    kept = stop > start
    return start[kept], stop[kept]


def minus(times: Times, other: Times) -> Times:
    """What of `times` is not in `other`."""
    return _where(times, other, wanted=False)


def common(times: Times, other: Times) -> Times:
    return _where(times, other, wanted=True)


def length(times: Times) -> float:
    return float((times[1] - times[0]).sum())


def _where(times: Times, other: Times, *, wanted: bool) -> Times:
    if not len(times[0]):
        return NOTHING
    edges = np.unique(np.concatenate([*times, *other]))
    begin, end = edges[:-1], edges[1:]
    kept = _covers(times, begin) & (_covers(other, begin) == wanted)
    return union(begin[kept], end[kept])


def _covers(times: Times, moments: Floats) -> NDArray[np.bool_]:
    """Whether each moment lies in the set; ends do not."""
    if not len(times[0]):
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(times[0], moments, side="right") - 1
    return np.asarray((place >= 0) & (moments < times[1][np.maximum(place, 0)]))
