"""Arrays a strategy computes with: torch tensors when it runs, ghosts when only its messages are counted.

The leading axis is the workers held by this process: all n in a simulation, one in a run. A ghost has a shape and no
numbers, so that a strategy can be costed without torch and without memory.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    Array = Tensor
else:
    Array = Any

Shape = tuple[int, ...]


def _joined(a: Shape, b: Shape) -> Shape:
    """The shape of two arrays combined element by element."""
    length = max(len(a), len(b))
    a, b = (1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


class Ghost:
    def __init__(self, *shape: int) -> None:
        self.shape: Shape = shape

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def _with(self, other: "Ghost | float") -> "Ghost":
        return Ghost(*_joined(self.shape, other.shape)) if isinstance(other, Ghost) else self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _with

    def __neg__(self) -> "Ghost":
        return self

    def __getitem__(self, place: tuple[slice, slice]) -> "Ghost":
        """Only [:, a:b] is used on arrays by strategies."""
        return Ghost(self.shape[0], len(range(*place[1].indices(self.shape[1]))))


def ghostly(*arrays: Any) -> Ghost | None:
    """The first ghost among the arguments."""
    return next((array for array in arrays if isinstance(array, Ghost)), None)


def local(work: Callable[..., Array], *arrays: Any, shape: Shape | None = None) -> Array:
    """Work that sends nothing and may need torch: done on arrays, skipped on ghosts.

    Its result has the shape of the first array unless `shape` says otherwise.
    """
    ghost = ghostly(*arrays)
    if ghost is None:
        return work(*arrays)
    return Ghost(*(shape or ghost.shape))  # type: ignore[return-value]


def splice(whole: Array, start: int, stop: int, part: Array) -> Array:
    """A copy of `whole` with its columns from start to stop replaced."""

    def joined(whole: Array, part: Array) -> Array:
        out = whole.clone()
        out[:, start:stop] = part
        return out

    return local(joined, whole, part)
