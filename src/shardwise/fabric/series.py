"""Bytes over time: spans of traffic as the load of equal parts of a step."""

import numpy as np

from shardwise.arrays import Floats


def spread(start: Floats, end: Floats, amount: Floats, edges: Floats) -> Floats:
    """How much of the amounts, each spread evenly over its span, falls between neighbouring edges."""
    lasting = end > start
    start, end, amount = start[lasting], end[lasting], amount[lasting]
    if not len(start):
        return np.zeros(len(edges) - 1)
    moments = np.concatenate([start, end])
    change = np.concatenate([amount / (end - start), -amount / (end - start)])
    order = np.argsort(moments, kind="stable")
    moments, rate = moments[order], np.cumsum(change[order])
    sent = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(moments))])
    return np.diff(np.interp(edges, moments, sent))
