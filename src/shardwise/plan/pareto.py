"""What nothing beats on every count at once."""

from collections.abc import Sequence

import numpy as np

from shardwise.arrays import Floats, Ints


def staircase(steps: Floats, peaks: Floats, limit: float) -> Ints:
    """Of the policies inside `limit`: those with no other as fast and as small, fastest first."""
    inside = np.flatnonzero(peaks <= limit)
    order = inside[np.lexsort((peaks[inside], steps[inside]))]
    if not len(order):
        return np.asarray(order)
    smallest_before = np.minimum.accumulate(np.concatenate(([np.inf], peaks[order][:-1])))
    return np.asarray(order[peaks[order] < smallest_before])


def undominated(rows: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the rows that no other row equals or beats in every column (smaller is better) and beats in one."""
    table = np.array(rows, dtype=np.float64)
    kept = []
    for index, row in enumerate(table):
        others_beat = (table <= row).all(axis=1) & (table < row).any(axis=1)
        twin_before = (table[:index] == row).all(axis=1).any()
        if not others_beat.any() and not twin_before:
            kept.append(index)
    return kept
