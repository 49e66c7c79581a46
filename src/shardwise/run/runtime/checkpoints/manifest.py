"""What a checkpoint is: its step, what it is of, and every block of every file with its place and checksum.

The manifest is the last file written, and the only one that is believed: files are bare numbers, and what it does not
list is not read. It carries a checksum of itself.
"""

import hashlib
import stat
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shardwise.whole_file import moved_to

NAME = "manifest.json"
FORM = "shardwise checkpoint 1"
MOST_BYTES = 1 << 28
"""a manifest has a hundred bytes for each block of a tensor; a longer file is none"""
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
              "uint8": 1, "bool": 1}  # fmt: skip


MOST_AXES, MOST_LONG = 8, 1 << 62
"""axes of a tensor and elements along one: more are not of a model"""


class DamagedCheckpoint(ValueError):
    """Why a checkpoint cannot be believed."""


class SavedBlock(Struct, frozen=True, kw_only=True):
    """Part of a tensor: one after another the blocks of a file are the whole file."""

    tensor: str
    offsets: tuple[int, ...]
    """of its first element in the whole tensor"""
    sizes: tuple[int, ...]
    file: str
    at: int
    bytes: int
    sha256: str


class TensorForm(Struct, frozen=True, kw_only=True):
    dtype: str
    shape: tuple[int, ...]

    def text(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Manifest(Struct, frozen=True, kw_only=True):
    form: str = FORM
    step: int
    saved: str
    """when, in UTC"""
    ranks: int
    """that wrote it"""
    of: dict[str, Any]
    """the training it is a checkpoint of; empty where nobody said"""
    tensors: dict[str, TensorForm]
    files: dict[str, int]
    """bytes of each"""
    blocks: tuple[SavedBlock, ...]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


class _Sealed(Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: Raw


def write_manifest(folder: Path, manifest: Manifest) -> None:
    content = msgspec.json.encode(manifest)
    with moved_to(folder / NAME) as file:
        file.write(msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), Raw(content))))


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """With its checksum, by which ranks know that they see the same."""
    path = folder / NAME
    try:
        if ordinary_size(path) > MOST_BYTES:
            raise DamagedCheckpoint(f"{NAME} is larger than {MOST_BYTES:,} bytes")
        content = path.read_bytes()
    except NotADirectoryError:
        raise DamagedCheckpoint("it is a file, not a folder") from None
    except FileNotFoundError:
        raise DamagedCheckpoint(f"it has no {NAME}") from None
    except OSError as error:
        raise DamagedCheckpoint(f"{NAME} cannot be read ({error.strerror})") from None
    try:
        sealed = msgspec.json.decode(content, type=_Sealed)
        inside = bytes(sealed.manifest)
        # encoded again, since a checksum of the inside says nothing of the bytes around it
        if hashlib.sha256(inside).hexdigest() != sealed.sha256 or msgspec.json.encode(sealed) != content:
            raise DamagedCheckpoint(f"{NAME} does not have its checksum")
        manifest = msgspec.json.decode(inside, type=Manifest)
        if msgspec.json.encode(manifest) != inside:
            raise DamagedCheckpoint(f"{NAME} has a name twice, or one that no manifest has")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DamagedCheckpoint(f"{NAME} is not a manifest") from None
    _checked(manifest)
    return manifest, sealed.sha256


def ordinary_size(path: Path) -> int:
    """Bytes of a file; DamagedCheckpoint where it is a pipe or a device, which may never end, or a link: to the file of
    another checkpoint, which goes when that is deleted."""
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        raise DamagedCheckpoint(f"{path.name} is a symbolic link, not an ordinary file; copy the file it points to")
    if not stat.S_ISREG(about.st_mode):
        raise DamagedCheckpoint(f"{path.name} is not an ordinary file")
    return about.st_size


def _checked(manifest: Manifest) -> None:
    """Its checksum says that it is as it was written, not who wrote it."""
    if manifest.form != FORM:
        raise DamagedCheckpoint(f"{NAME} has the form {manifest.form[:40]!r}, this version reads {FORM!r}")
    if not 0 <= manifest.step < MOST_LONG:
        raise DamagedCheckpoint(f"{NAME} says step {manifest.step}")
    outside = [name for name in manifest.files if Path(name).name != name or name in ("", ".", "..", NAME)]
    if outside:
        raise DamagedCheckpoint(f"{NAME} lists {outside[0][:40]!r}, which is not a file of its folder")
    for name, form in manifest.tensors.items():
        shape = form.shape
        if form.dtype not in ITEM_BYTES or len(shape) > MOST_AXES or not all(0 <= n < MOST_LONG for n in shape):
            raise DamagedCheckpoint(f"{NAME} lists {name[:80]!r} as {form.text()[:80]}, which is not a tensor")
    ends = dict.fromkeys(manifest.files, 0)
    for block in manifest.blocks:
        whole = manifest.tensors.get(block.tensor)
        if whole is None or not _inside(block, whole):
            raise DamagedCheckpoint(f"{NAME} has a block of {block.tensor[:40]!r} that fits no tensor")
        if block.at != ends.get(block.file, -1):
            raise DamagedCheckpoint(f"{NAME} has a hole in {block.file[:40]!r}")
        ends[block.file] += block.bytes
    if ends != manifest.files:
        raise DamagedCheckpoint(f"{NAME} does not list every byte of its files")


def _inside(block: SavedBlock, form: TensorForm) -> bool:
    places = (block.offsets, block.sizes, form.shape)
    if len({len(place) for place in places}) != 1 or min((*block.offsets, *block.sizes), default=0) < 0:
        return False
    if 0 in block.sizes and 0 not in form.shape:
        return False
    fits = all(first + size <= whole for first, size, whole in zip(*places, strict=True))
    return fits and block.bytes == prod(block.sizes) * ITEM_BYTES[form.dtype]


def refuse_unlike(
    tensors: Mapping[str, TensorForm], wanted: Mapping[str, TensorForm], of: str, prefix: str = ""
) -> None:
    """DamagedCheckpoint where a wanted one is missing, or has another dtype or shape."""
    for name, form in wanted.items():
        listed = tensors.get(name)
        if listed is None:
            raise DamagedCheckpoint(f"{prefix}{name} is missing, which {of} has")
        if listed != form:
            raise DamagedCheckpoint(f"{prefix}{name} is {listed.text()[:80]}, which {of} has as {form.text()}")
