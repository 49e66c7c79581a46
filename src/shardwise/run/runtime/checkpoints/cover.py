"""Do blocks cover a tensor once and whole? Linear in their number, since a stranger may write many."""

from collections.abc import Iterable, Iterator
from itertools import product

from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint, Manifest, SavedBlock

Corner = tuple[int, ...]


def refuse_uncovered(manifest: Manifest) -> None:
    """DamagedCheckpoint that names the tensor, the elements, and whether they are missing or there more than once."""
    blocks: dict[str, list[SavedBlock]] = {name: [] for name in manifest.tensors}
    for block in manifest.blocks:
        blocks[block.tensor].append(block)
    for name, form in manifest.tensors.items():
        if why := uncovered(form.shape, ((b.offsets, b.sizes) for b in blocks[name])):
            raise DamagedCheckpoint(f"{name[:80]}{why}")


def uncovered(shape: Corner, blocks: Iterable[tuple[Corner, Corner]]) -> str:
    """The first elements that are not covered exactly once; empty: there are none.

    How often each element is covered, less once, is a sum of boxes. A box is known by its corners, taken with
    alternating signs, and so is a sum of them: it is zero everywhere exactly where all corners cancel. At the first
    corner left, in the order of the axes, what is left is how often the element there is covered too much.
    """
    left: dict[Corner, int] = {}
    for corner, sign in _corners((0,) * len(shape), shape):
        left[corner] = left.get(corner, 0) - sign
    for offsets, sizes in blocks:
        for corner, sign in _corners(offsets, sizes):
            left[corner] = left.get(corner, 0) + sign
    wrong = {corner: times for corner, times in left.items() if times}
    if not wrong:
        return ""
    first = min(wrong)
    ends = [
        min((c[axis] for c in wrong if c[axis] > at and _beside(c, first, axis)), default=shape[axis])
        for axis, at in enumerate(first)
    ]
    where, times = elements(first, ends), wrong[first] + 1
    return f"{where} is missing" if times <= 0 else f"{where} is there {times} times"


def elements(first: Iterable[int], ends: Iterable[int]) -> str:
    """As in `x[0:2, 4:8]`; of a single number nothing."""
    ranges = ", ".join(f"{at}:{end}" for at, end in zip(first, ends, strict=True))
    return f"[{ranges}]" if ranges else ""


def _corners(offsets: Corner, sizes: Corner) -> Iterator[tuple[Corner, int]]:
    for far in product((0, 1), repeat=len(sizes)):
        yield tuple(at + size * end for at, size, end in zip(offsets, sizes, far, strict=True)), (-1) ** sum(far)


def _beside(one: Corner, other: Corner, axis: int) -> bool:
    return one[:axis] == other[:axis] and one[axis + 1 :] == other[axis + 1 :]
