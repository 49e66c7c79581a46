"""How tensors lie in memory beside each other, and what it costs a kernel to find their elements."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

AXIS_TIME = 0.15
"""of each axis beyond two that a kernel which goes element by element finds its place in"""
LINE_BYTES, WARP = 128, 32
"""of the cache; threads that ask together"""


def lines_touched(source: Tensor, out: Tensor) -> int:
    """Of the memory, that the threads of a warp touch in `source` while they write neighbours of `out`."""
    left, lines = WARP, 1
    for axis in sorted((a for a in range(out.dim()) if out.shape[a] > 1), key=lambda a: out.stride()[a]):
        many = min(left, out.shape[axis])
        lines *= min(many, -(-many * source.stride()[axis] * source.element_size() // LINE_BYTES) or 1)
        left = -(-left // many)
        if left == 1:
            break
    return min(lines, WARP)


def elements_found(out: Tensor, operands: Sequence[Tensor]) -> int:
    """Elements, and what it takes to find them: a division for each axis that does not fall together with its
    neighbour."""
    together = 0
    tensors = [t.expand(out.shape) if t.shape != out.shape else t for t in (out, *operands)]
    sizes = [axis for axis in range(out.dim()) if out.shape[axis] > 1]
    for outer, inner in pairwise(sizes):
        together += all(t.stride()[outer] == t.stride()[inner] * t.shape[inner] for t in tensors)
    axes = len(sizes) - together
    return round(out.numel() * (1.0 + AXIS_TIME * max(axes - 2, 0)))


def same_layout(first: Tensor, second: Tensor) -> bool:
    """Element i of one lies where element i of the other does, and nothing lies between."""
    if first.shape != second.shape:
        return False
    ones = [(a, b) for a, b, size in zip(first.stride(), second.stride(), first.shape, strict=True) if size > 1]
    return all(a == b for a, b in ones) and _dense(first)


def _dense(tensor: Tensor) -> bool:
    reached = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return reached == tensor.numel()
