"""The header of a safetensors file, without torch: names, types, shapes and places, all of them checked.

The file is untrusted: lengths, names, types and places are checked before anything is read
(huggingface.co/docs/safetensors: no holes, no overlaps, a header of at most 100 MB).
"""

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path

import msgspec
from msgspec import Struct

MOST_HEADER, MOST_VALUES, MOST_AXES = 100_000_000, 8_000_000, 16


class Entry(Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class SafeHeader:
    """`item`: bytes of an element by the format's name of its type; `field`: whose file it is, for refusals."""

    def __init__(self, path: Path, item: Mapping[str, int], field: str = "init") -> None:
        self.path, self.field, self._item = path, field, item
        self.metadata: dict[str, str] = {}
        try:
            if not path.is_file():  # a pipe may have nobody who writes
                raise self.wrong("it is not a file")
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(MOST_HEADER, size - 8):
                    raise self.wrong(f"its header would have {length:,} of {size:,} bytes")
                header = file.read(length)
        except OSError as error:
            raise ValueError(
                f"{field}: {str(path)!r} cannot be read ({error.strerror}); write a .safetensors"
            ) from None
        self.start = 8 + length
        self.entries = self._entries(header, size - self.start)

    def wrong(self, why: str) -> ValueError:
        return ValueError(f"{self.field}: {str(self.path)!r} is not a safetensors file: {why}; write another file")

    def _entries(self, header: bytes, room: int) -> dict[str, Entry]:
        try:
            if sum(map(header.count, (b",", b"[", b"{"))) > MOST_VALUES:
                raise self.wrong(f"its header has more than {MOST_VALUES:,} values")
            found = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
            self.metadata = msgspec.json.decode(found.pop("__metadata__", msgspec.Raw(b"{}")), type=dict[str, str])
            entries = {name: msgspec.json.decode(entry, type=Entry) for name, entry in found.items()}
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise self.wrong(f"its header is garbled ({error})") from None
        at = 0
        for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
            if entry.dtype not in self._item or len(entry.shape) > MOST_AXES or any(n < 0 for n in entry.shape):
                raise self.wrong(f"{name[:80]!r} is {entry.dtype[:20]} {entry.shape[:8]}")
            first, end = entry.data_offsets
            if first != at or end - first != prod(entry.shape) * self._item[entry.dtype]:
                raise self.wrong(f"{name[:80]!r} lies at {first} to {end}, its shape or neighbour says otherwise")
            at = end
        if at != room:
            raise self.wrong(f"tensors take {at:,} bytes, the file has {room:,}")
        return entries
