"""What `torch.save` wrote, as data: a zip with a pickle and the bytes of each storage. Nothing in it is run."""

import io
import zipfile
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct

from shardwise.programs.importers.plain_pickle import MadeObject, Name, load
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.stored import ITEM, StoragePlace, StoredBlock, StoredTensor, rows_of

MOST_PICKLE, MOST_ENTRIES, MOST_VALUES = 1 << 28, 1 << 20, 1 << 16
"""bytes; names in a zip; elements of a tensor that is read as a plain value"""
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "Float8_e4m3fnStorage": "float8_e4m3fn",
    "Float8_e5m2Storage": "float8_e5m2",
}  # fmt: skip
_TENSORS = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3")
_WRAPPED = (
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch._tensor _rebuild_from_type_v2",
)
LOCAL_HEADER = 30


class _Window(io.RawIOBase):
    """Part of a file as if it were one."""

    def __init__(self, path: Path, at: int, length: int) -> None:
        self._file, self._start, self._length, self._at = path.open("rb"), at, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._length)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        room = max(0, min(len(target), self._length - self._at))
        self._file.seek(self._start + self._at)
        got = self._file.read(room)
        target[: len(got)] = got
        self._at += len(got)
        return len(got)

    def close(self) -> None:
        self._file.close()
        super().close()


class Saved(Struct):
    """A file of `torch.save`: its tree with a StoredTensor in place of each tensor."""

    tree: Any
    names: tuple[str, ...] = ()
    """functions and classes it names besides tensors"""


def read_saved(path: Path, at: int = 0, length: int | None = None) -> Saved:
    """DamagedCheckpoint where it is not such a file, or asks for more than a checkpoint needs."""
    try:
        size = path.stat().st_size
        length = size - at if length is None else length
        if at < 0 or length < 0 or at + length > size:
            raise DamagedCheckpoint(f"{path.name} has {size:,} bytes, a tensor ends at {at + length:,}")
        with _Window(path, at, length) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as packed:
            return _read(packed, path, at)
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, DamagedCheckpoint):
            raise
        raise DamagedCheckpoint(f"{path.name} cannot be read as a file of torch.save ({str(error)[:150]})") from None
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from None


def _read(packed: zipfile.ZipFile, path: Path, start: int) -> Saved:
    entries = {one.filename.partition("/")[2]: one for one in packed.infolist()}
    if len(entries) > MOST_ENTRIES or "data.pkl" not in entries:
        raise DamagedCheckpoint(f"{path.name} has no data.pkl, so it is not a file of torch.save")
    if entries["data.pkl"].file_size > MOST_PICKLE:
        raise DamagedCheckpoint(f"{path.name} has a pickle of more than {MOST_PICKLE:,} bytes")
    if (order := entries.get("byteorder")) is not None and packed.read(order)[:10] != b"little":
        raise DamagedCheckpoint(f"{path.name} was written on a big-endian machine")
    storages: dict[str, tuple[int, int, int]] = {}
    for name, entry in entries.items():
        if name.startswith("data/"):
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise DamagedCheckpoint(f"{path.name} holds compressed storages, which torch.save does not write")
            storages[name.removeprefix("data/")] = (entry.header_offset, entry.file_size, entry.CRC)
    builder = _Builder(packed, path, start, storages)
    tree = builder.tree(load(packed.read(entries["data.pkl"]), objects=True))
    return Saved(tree=tree, names=tuple(sorted(builder.names)))


class _Builder:
    def __init__(
        self, packed: zipfile.ZipFile, path: Path, start: int, storages: dict[str, tuple[int, int, int]]
    ) -> None:
        self.packed, self.path, self.start, self.storages = packed, path, start, storages
        self.names: set[str] = set()
        self._done: dict[int, Any] = {}

    def tree(self, node: Any) -> Any:
        """Each container once, since a pickle may refer to one from many places."""
        if not isinstance(node, list | tuple | dict | MadeObject):
            return node
        if id(node) not in self._done:
            self._done[id(node)] = self._built(node)
        return self._done[id(node)]

    def _built(self, node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key if not isinstance(key, MadeObject) else key.name: self.tree(value) for key, value in node.items()
            }
        if isinstance(node, list | tuple):
            return type(node)(map(self.tree, node))
        if node.name in _TENSORS:
            return self._tensor(node.arguments)
        if node.name in _WRAPPED:
            inner = [one for one in _flat(node.arguments) if isinstance(one, MadeObject) and one.name in _TENSORS]
            if len(inner) == 1:
                return self.tree(inner[0])
            found = [one for one in _flat(node.arguments) if isinstance(one, Name)]
            if node.name.endswith("v2") and "torch._utils _rebuild_tensor_v2" in found:
                return self._tensor(next(one for one in node.arguments if isinstance(one, tuple)))
        self.names.add(node.name)
        return MadeObject(node.name, tuple(map(self.tree, node.arguments)), self.tree(node.state))

    def _tensor(self, arguments: tuple[Any, ...]) -> StoredTensor:
        try:
            storage, first, sizes, strides = arguments[:4]
            kind, key = storage.arguments[0][1], storage.arguments[0][2]
            own = next((one for one in arguments[6:7] if isinstance(one, Name)), None)
            dtype = _dtype(own) if own is not None else _STORAGES[kind.split()[-1]]
            whole = all(isinstance(n, int) and n >= 0 for n in (first, *sizes, *strides)) and len(sizes) == len(strides)
            place, room, crc = self.storages[str(key)]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise DamagedCheckpoint(f"{self.path.name} has a tensor in a form that is not read") from None
        item = ITEM[dtype]
        span = first + 1 + sum(s * (n - 1) for s, n in zip(strides, sizes, strict=True)) if whole and prod(sizes) else 0
        if not whole or span * item > room:
            raise DamagedCheckpoint(f"{self.path.name} has a tensor that is longer than its storage")
        contiguous = strides == _row_by_row(sizes)

        def where() -> StoragePlace:
            start = self._data_at(place)
            sealed = (start, room, crc) if crc else None
            return StoragePlace(self.path, start + first * item, None if contiguous else strides, sealed)

        block = StoredBlock((0,) * len(sizes), tuple(sizes), where)
        return StoredTensor(dtype=dtype, shape=tuple(sizes), blocks=(block,))

    def _data_at(self, header: int) -> int:
        """Behind the local header, whose lengths the zip's own table does not repeat."""
        with self.path.open("rb") as file:
            file.seek(self.start + header)
            head = file.read(LOCAL_HEADER)
        if head[:4] != b"PK\x03\x04":
            raise DamagedCheckpoint(f"{self.path.name} has a damaged zip header")
        lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        return self.start + header + LOCAL_HEADER + lengths


def _flat(node: Any) -> list[Any]:
    return [one for part in node for one in (_flat(part) if isinstance(part, tuple) else [part])]


def _row_by_row(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))


def _dtype(name: str) -> str:
    found = str(name).split()[-1]
    return {"float": "float32", "half": "float16", "double": "float64", "long": "int64"}.get(found, found)


def plain(node: Any) -> Any:
    """A tree in which small tensors are numbers: what a step, an option or a generator holds."""
    if isinstance(node, StoredTensor):
        if prod(node.shape) > MOST_VALUES:
            return f"{node.dtype} {list(node.shape)}"
        return rows_of(node, 0, node.shape[0] if node.shape else 1).tolist()
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [plain(value) for value in node]
    if isinstance(node, MadeObject):
        return plain(node.state) if node.state is not None else f"{node.name.replace(' ', '.')}{plain(node.arguments)}"
    return str(node) if isinstance(node, Name) else node
