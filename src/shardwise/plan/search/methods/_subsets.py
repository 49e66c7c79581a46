"""Packing equal boxes, blocks of boxes at a time, over sets of what is still unpacked.

The rest of the packing depends on what is left alone, so its best answers are found once for each set that can be left:
those of which no other is better or equal in every respect (the worst box and block so far, in each figure). By
symmetry the lowest unpacked item opens the next block, and the next box inside it. Only the packing that
is kept in the end is priced.
"""

from functools import cache
from itertools import combinations

import numpy as np

from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import Subsets

Worst = tuple[float, ...]
Boxes = tuple[tuple[int, ...], ...]
Kept = list[tuple[Worst, Boxes]]


def look_into(meter: Meter, subsets: Subsets) -> None:
    meter.price(meter.problem.default[None])
    if not meter.left:
        return
    front = _Packing(subsets).blocks(tuple(range(subsets.items)))
    figures = len(subsets.box_cost((0,)))
    ordered = sorted(front, key=lambda kept: subsets.seconds(kept[0][:figures], kept[0][figures:]))
    point = np.zeros(subsets.items, dtype=np.int64)
    for box, items in enumerate(ordered[0][1]):
        point[list(items)] = box
    meter.price(point[None])
    meter.proven = True


class _Packing:
    def __init__(self, subsets: Subsets) -> None:
        self.subsets = subsets
        self.blocks = cache(self._blocks)
        self.boxes = cache(self._boxes)

    def _blocks(self, left: tuple[int, ...]) -> Kept:
        """The best ways to pack what is left into whole blocks."""
        size = self.subsets.per_box * self.subsets.boxes_per_block
        found: Kept = []
        for inside, rest in _openings(left, size):
            own = self.subsets.block_cost(inside)
            here = [(box + own, boxes) for box, boxes in self.boxes(inside)]
            found += here if not rest else [_both(a, b) for a in here for b in self.blocks(rest)]
        return _unbeaten(found)

    def _boxes(self, left: tuple[int, ...]) -> Kept:
        """The best ways to pack one block's items into its boxes."""
        found: Kept = []
        for inside, rest in _openings(left, self.subsets.per_box):
            own = (self.subsets.box_cost(inside), (inside,))
            found += [own] if not rest else [_both(own, kept) for kept in self.boxes(rest)]
        return _unbeaten(found)


def _openings(left: tuple[int, ...], size: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every box of this size that holds the first item, and what it leaves."""
    first, others = left[0], left[1:]
    found = []
    for more in combinations(others, size - 1):
        taken = set(more)
        found.append(((first, *more), tuple(item for item in others if item not in taken)))
    return found


def _both(one: tuple[Worst, Boxes], other: tuple[Worst, Boxes]) -> tuple[Worst, Boxes]:
    return tuple(max(a, b) for a, b in zip(one[0], other[0], strict=True)), one[1] + other[1]


def _unbeaten(found: Kept) -> Kept:
    """Those that no other matches or betters in every respect; sorted, so that only earlier ones can."""
    kept: Kept = []
    for worst, boxes in sorted(found, key=lambda entry: entry[0]):
        if not any(all(a <= b for a, b in zip(other, worst, strict=True)) for other, _ in kept):
            kept.append((worst, boxes))
    return kept
