"""The safetensors format: 8 bytes with the header's length, a JSON header, the tensors one after another."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from shardwise.run.runtime.weights.safe_header import SafeHeader
from shardwise.whole_file import moved_to

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in TYPES.items()}
_PLAIN = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
"""numpy has no bf16: elements are read as whole numbers of their size and seen as their type after"""


class SafeFile(SafeHeader):
    """A file's tensors; a block of one is read without the rest."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, {name: dtype.itemsize for name, dtype in TYPES.items()})

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
    values: Callable[[str], Tensor | Iterable[Tensor]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Asks for one tensor after another, in the order given, whole or as its rows piece by piece; the file is there
    when it is whole."""
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
            size = 0
            for part in (value,) if isinstance(value, Tensor) else value:
                assert part.dtype == dtype, name
                plain = part.detach().cpu().contiguous().view(-1).view(torch.uint8)
                file.write(plain.numpy().data)
                size += len(plain)
            assert size == prod(shape) * dtype.itemsize, name
