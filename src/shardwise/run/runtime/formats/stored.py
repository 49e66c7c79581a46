"""A checkpoint, whoever wrote it: tensors by name with the place of every block on disk, and plain values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from shardwise.run.runtime.checkpoints.manifest import ITEM_BYTES, DamagedCheckpoint

Array = NDArray[Any]
ITEM = ITEM_BYTES | {"float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8}
"""bytes of an element"""
PIECE = 1 << 25
"""bytes of a tensor in memory at a time, where one row of it is not larger"""
WEIGHT, MASTER, STEP, OTHER = "weight", "master", "step", "other"
"""kinds of tensor; every other kind is the name of an optimizer's moment"""


class StoragePlace(Struct, frozen=True):
    """Where the elements of a block are."""

    file: Path
    at: int
    strides: tuple[int, ...] | None = None
    """in elements; None: one row after another"""
    sealed: tuple[int, int, int] | None = None
    """(first byte, bytes, CRC-32) of the storage it lies in, where its file states one"""


class StoredBlock(Struct, frozen=True):
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    place: Callable[[], StoragePlace]
    """looked up when it is read: a file may hold a million blocks"""


class StoredTensor(Struct, frozen=True, kw_only=True):
    dtype: str
    shape: tuple[int, ...]
    blocks: tuple[StoredBlock, ...]
    kind: str = WEIGHT
    parameter: str = ""
    """the weight it belongs to; its own name if it is one"""
    flat: bool = False
    """blocks are runs of elements of the tensor laid out in one row"""

    @property
    def covered_shape(self) -> tuple[int, ...]:
        return (prod(self.shape),) if self.flat else self.shape

    @property
    def bytes(self) -> int:
        return prod(self.shape) * ITEM[self.dtype]


class StoredCheckpoint(Struct, kw_only=True):
    path: Path
    format: str
    tensors: dict[str, StoredTensor]
    values: dict[str, Any] = field(default_factory=dict)
    """everything that is not a tensor, by its path: steps, schedule, options, generators"""
    step: int | None = None
    remarks: list[str] = field(default_factory=list)

    def of_kind(self, kind: str) -> dict[str, StoredTensor]:
        """By the weight's name."""
        return {one.parameter: one for one in self.tensors.values() if one.kind == kind}

    @property
    def moments(self) -> list[str]:
        kinds = {one.kind for one in self.tensors.values()} - {WEIGHT, MASTER, STEP, OTHER}
        return sorted(kinds)


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """As numpy reads it: bf16 and fp8 as whole numbers of their size."""
    known = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
    return np.dtype(known.get(dtype, dtype))


def pieces(tensor: StoredTensor, most: int = PIECE) -> Iterator[tuple[int, int]]:
    """(first row, rows) one after another; a number is one row."""
    rows = tensor.shape[0] if tensor.shape else 1
    step = max(1, most // max(1, tensor.bytes // max(1, rows)))
    for first in range(0, rows, step):
        yield first, min(step, rows - first)


def rows_of(tensor: StoredTensor, first: int, count: int) -> Array:
    """Rows [first, first + count); what no block covers stays zero, which `uncovered` finds before."""
    shape = (count, *tensor.shape[1:]) if tensor.shape else ()
    found = np.zeros(shape, stored_dtype(tensor.dtype))
    if tensor.flat:
        width = prod(tensor.shape[1:])
        _fill(found.reshape(-1), tensor, (first * width,))
    else:
        _fill(found, tensor, (first, *(0 for _ in tensor.shape[1:])) if tensor.shape else ())
    return found


def _fill(target: Array, tensor: StoredTensor, origin: Sequence[int]) -> None:
    for block in tensor.blocks:
        ends = zip(block.offsets, block.sizes, origin, target.shape, strict=True)
        cut = [(max(at, start), min(at + size, start + long)) for at, size, start, long in ends]
        if any(low >= high for low, high in cut):
            continue
        inside = tuple(slice(low - at, high - at) for (low, high), at in zip(cut, block.offsets, strict=True))
        there = tuple(slice(low - at, high - at) for (low, high), at in zip(cut, origin, strict=True))
        target[there] = _opened(block, tensor.dtype)[inside]


def _opened(block: StoredBlock, dtype: str) -> Array:
    place, item = block.place(), ITEM[dtype]
    strides = place.strides
    span = prod(block.sizes)
    if strides is not None and span:
        span = 1 + sum(s * (n - 1) for s, n in zip(strides, block.sizes, strict=True))
    if not prod(block.sizes):
        return np.zeros(block.sizes, stored_dtype(dtype))
    try:
        size = place.file.stat().st_size
        if place.at < 0 or place.at + span * item > size:
            raise DamagedCheckpoint(f"{place.file.name} has {size:,} bytes, a block ends at {place.at + span * item:,}")
        flat: Array = np.memmap(place.file, dtype=stored_dtype(dtype), mode="r", offset=place.at, shape=(span,))
    except OSError as error:
        raise DamagedCheckpoint(f"{place.file.name} cannot be read ({error.strerror})") from None
    if strides is None:
        return flat.reshape(block.sizes)
    return np.lib.stride_tricks.as_strided(flat, block.sizes, tuple(s * item for s in strides), writeable=False)


def numbers(array: Array, dtype: str) -> Array:
    """In a type of numpy that holds every one of them exactly."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("float8"):
        return _FLOAT8[dtype][array]
    return array


def _float8(exponent: int, mantissa: int, *, infinities: bool) -> Array:
    codes = np.arange(256)
    bias, size = 2 ** (exponent - 1) - 1, 2**mantissa
    power, rest = (codes & 127) >> mantissa, codes & (size - 1)
    value = np.where(power == 0, rest / size * 2.0 ** (1 - bias), (1 + rest / size) * 2.0 ** (power - bias))
    top = power == 2**exponent - 1
    wrong = top & (rest != 0) if infinities else (codes & 127) == 127
    value = np.where(top & (rest == 0) & infinities, np.inf, value)
    return np.where(wrong, np.nan, np.where(codes < 128, value, -value)).astype(np.float32)


_FLOAT8: Mapping[str, Array] = {
    "float8_e4m3fn": _float8(4, 3, infinities=False), "float8_e5m2": _float8(5, 2, infinities=True),
}  # fmt: skip


def known_dtype(dtype: str, name: str) -> str:
    if dtype not in ITEM:
        raise DamagedCheckpoint(f"{name[:80]} is {dtype[:40]}, which is not a type of number that is read")
    return dtype
