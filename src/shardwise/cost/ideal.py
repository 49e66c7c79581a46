"""The bandwidth-only textbook law of collectives on a tree of levels: what a perfect fabric would need.

B is the whole array (all_to_all: over all ranks together). A level's own figure is what ONE GPU can send into it; a
group sharded over an inner axis of Y ranks has max(Y, GPUs below the level) links into it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardwise.spec.cluster import Level

_PASSES = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0}


def ideal_bandwidths(levels: Sequence[Level], inner: int = 1) -> list[float]:
    """bytes/s with which the group can move one array through each level."""
    found, below = [], 1
    for level in levels:
        found.append(max(inner, below) * level.usable_bandwidth)
        below *= level.degree
    return found


def ideal_seconds(
    op: str, bytes_: ArrayLike, levels: Sequence[Level], *, inner: int = 1, sharp: bool = False
) -> NDArray[np.float64]:
    """B max_i (D_i - 1) / (D_i W_i) for all_gather and reduce_scatter, twice that for all_reduce, B / W where the
    switches reduce; all_to_all B (M - 1) / (M^2 W) for the M blocks below each level."""
    size = np.asarray(bytes_, dtype=np.float64)
    rates = ideal_bandwidths(levels, inner)
    degrees = [level.degree for level in levels]
    if op == "all_to_all":
        total = int(np.prod(degrees))
        below = np.cumprod([1, *degrees[:-1]])
        slowest = max((total / b - 1.0) / ((total / b) ** 2 * rate) for b, rate in zip(below, rates, strict=True))
        return np.asarray(size * slowest)
    if op not in _PASSES:
        raise ValueError(f"op: {op!r} has no textbook law; write one of {', '.join([*_PASSES, 'all_to_all'])}")
    if op == "all_reduce" and sharp:
        return np.asarray(size * max(1.0 / rate for d, rate in zip(degrees, rates, strict=True) if d > 1))
    slowest = max((d - 1.0) / (d * rate) for d, rate in zip(degrees, rates, strict=True))
    return np.asarray(size * _PASSES[op] * slowest)
