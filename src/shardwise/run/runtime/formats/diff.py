"""Two checkpoints compared tensor by tensor, whatever formats they are in, by weight and kind."""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from shardwise.run.runtime.formats.stored import OTHER, Array, StoredCheckpoint, StoredTensor, numbers, pieces, rows_of

Key = tuple[str, str]


class TensorDifference(Struct, frozen=True, kw_only=True):
    tensor: str
    kind: str
    only_in: str = ""
    """a or b; empty: in both"""
    forms: tuple[str, str] | None = None
    """dtype and shape of each, where they differ"""
    unequal: int = 0
    """elements"""
    elements: int = 0
    most: float = 0.0
    """largest absolute difference of two elements"""


def by_weight(checkpoint: StoredCheckpoint) -> dict[Key, StoredTensor]:
    return {(one.kind, one.parameter if one.kind != OTHER else name): one for name, one in checkpoint.tensors.items()}


def differences_of(
    a: StoredCheckpoint, b: StoredCheckpoint, read: Callable[[int], None] = lambda _: None
) -> Iterator[TensorDifference]:
    """Of tensors that are not equal bit for bit, in the order of `a`."""
    first, second = by_weight(a), by_weight(b)
    for key in dict.fromkeys((*first, *second)):
        kind, name = key
        if key not in first or key not in second:
            yield TensorDifference(tensor=name, kind=kind, only_in="a" if key in first else "b")
        elif (found := _difference(first[key], second[key], name, read)) is not None:
            yield found


def _difference(a: StoredTensor, b: StoredTensor, name: str, read: Callable[[int], None]) -> TensorDifference | None:
    forms = (_form(a), _form(b)) if _form(a) != _form(b) else None
    unequal, elements, most = 0, 0, 0.0
    if a.shape != b.shape:
        return TensorDifference(tensor=name, kind=a.kind, forms=forms)
    for at, count in pieces(a):
        one, other = rows_of(a, at, count), rows_of(b, at, count)
        read(one.nbytes + other.nbytes)
        elements += one.size
        if a.dtype == b.dtype and one.tobytes() == other.tobytes():
            continue
        left, right = numbers(one, a.dtype), numbers(other, b.dtype)
        unequal += int((_bits(one) != _bits(other)).sum() if a.dtype == b.dtype else (left != right).sum())
        if left.size:
            with np.errstate(invalid="ignore"):
                gap = np.abs(left.astype(np.float64) - right.astype(np.float64))
            most = max(most, float(np.nan_to_num(gap, nan=np.inf).max()))
    if not unequal and forms is None:
        return None
    return TensorDifference(tensor=name, kind=a.kind, forms=forms, unequal=unequal, elements=elements, most=most)


def _bits(array: Array) -> Array:
    """Another sign of zero is a difference, and so is another not-a-number."""
    found: Array = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    return found


def _form(tensor: StoredTensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
