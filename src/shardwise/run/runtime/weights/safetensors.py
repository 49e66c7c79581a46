"""The safetensors format: 8 bytes with the header's length, a JSON header, the tensors one after another.

The file is untrusted: lengths, names, types and places are checked before anything is read
(huggingface.co/docs/safetensors: no holes, no overlaps, a header of at most 100 MB).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from shardwise.whole_file import moved_to

MOST_HEADER, MOST_VALUES, MOST_AXES = 100_000_000, 8_000_000, 16
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in TYPES.items()}
_PLAIN = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
"""numpy has no bf16: elements are read as whole numbers of their size and seen as their type after"""


class Entry(Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class SafeFile:
    """A file's tensors; a block of one is read without the rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not path.is_file():  # a pipe may have nobody who writes
                raise self._wrong("it is not a file")
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(MOST_HEADER, size - 8):
                    raise self._wrong(f"its header would have {length:,} of {size:,} bytes")
                header = file.read(length)
        except OSError as error:
            raise ValueError(f"init: {str(path)!r} cannot be read ({error.strerror}); write a .safetensors") from None
        self.start = 8 + length
        self.entries = self._entries(header, size - self.start)

    def _wrong(self, why: str) -> ValueError:
        return ValueError(f"init: {str(self.path)!r} is not a safetensors file: {why}; write another file")

    def _entries(self, header: bytes, room: int) -> dict[str, Entry]:
        try:
            if sum(map(header.count, (b",", b"[", b"{"))) > MOST_VALUES:
                raise self._wrong(f"its header has more than {MOST_VALUES:,} values")
            found = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
            found.pop("__metadata__", None)
            entries = {name: msgspec.json.decode(entry, type=Entry) for name, entry in found.items()}
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise self._wrong(f"its header is garbled ({error})") from None
        at = 0
        for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
            if entry.dtype not in TYPES or len(entry.shape) > MOST_AXES or any(n < 0 for n in entry.shape):
                raise self._wrong(f"{name[:80]!r} is {entry.dtype[:20]} {entry.shape[:8]}")
            first, end = entry.data_offsets
            if first != at or end - first != prod(entry.shape) * TYPES[entry.dtype].itemsize:
                raise self._wrong(f"{name[:80]!r} lies at {first} to {end}, its shape or neighbour says otherwise")
            at = end
        if at != room:
            raise self._wrong(f"tensors take {at:,} bytes, the file has {room:,}")
        return entries

    def block(self, name: str, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """`sizes` elements from `offsets` on of a tensor with as many axes."""
        entry = self.entries[name]
        dtype = TYPES[entry.dtype]
        if not prod(sizes):
            return torch.empty(tuple(sizes), dtype=dtype)
        whole = np.memmap(
            self.path, dtype=_PLAIN[dtype.itemsize], mode="r", offset=self.start + entry.data_offsets[0],
            shape=entry.shape or (1,),
        )  # fmt: skip
        part = whole[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))] if entry.shape else whole
        return torch.from_numpy(np.array(part)).view(dtype).view(tuple(sizes))


def write(
    path: Path,
    shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    values: Callable[[str], Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Asks for one tensor after another, in the order given; the file is there when it is whole."""
    at, header = 0, dict[str, Any]({"__metadata__": dict(metadata)} if metadata else {})
    for name, (dtype, shape) in shapes.items():
        end = at + prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (at, end)}
        at = end
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    with moved_to(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (dtype, shape) in shapes.items():
            value = values(name)
            assert (value.dtype, tuple(value.shape)) == (dtype, shape), name
            plain = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
            file.write(plain.numpy().data)
