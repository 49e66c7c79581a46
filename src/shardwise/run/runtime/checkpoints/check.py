"""Are the bytes of a checkpoint those that were written, and numbers? Reads all of them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shardwise.run.runtime.checkpoints.cover import elements
from shardwise.run.runtime.checkpoints.folder import present
from shardwise.run.runtime.checkpoints.manifest import ITEM_BYTES, DamagedCheckpoint, SavedBlock
from shardwise.run.runtime.checkpoints.stated import SYNC

PIECE = 1 << 24
"""bytes read at a time, whole numbers"""


def read_block(file: BinaryIO, block: SavedBlock, dtype: str) -> bytearray:
    """Its bytes, if they have their checksum and are numbers."""
    content = bytearray(block.bytes)
    file.seek(block.at)
    got = file.readinto(content)  # type: ignore[attr-defined]
    if got != block.bytes or hashlib.sha256(content).hexdigest() != block.sha256:
        raise DamagedCheckpoint(_unlike(block))
    if not _finite(content, block, dtype):
        raise DamagedCheckpoint(_not_finite(block))
    return content


def _check_block(file: BinaryIO, block: SavedBlock, dtype: str, told: Callable[[int], None]) -> None:
    """The same a piece at a time: a file may say that it is larger than any memory."""
    known, left, finite = hashlib.sha256(), block.bytes, True
    file.seek(block.at)
    while left and (part := file.read(min(left, PIECE))):
        known.update(part)
        finite = finite and _finite(part, block, dtype)
        left -= len(part)
        told(len(part))
    if left or known.hexdigest() != block.sha256:
        raise DamagedCheckpoint(_unlike(block))
    if not finite:
        raise DamagedCheckpoint(_not_finite(block))


def _finite(content: bytes | bytearray, block: SavedBlock, dtype: str) -> bool:
    """Parameters and moments; what a strategy of data parallelism keeps may hold anything."""
    if block.tensor.startswith(SYNC):
        return True
    whole = memoryview(content)[: len(content) // ITEM_BYTES[dtype] * ITEM_BYTES[dtype]]
    if dtype == "bfloat16":
        # the upper half of a float32: an exponent of ones
        return not ((np.frombuffer(whole, np.uint16) & 0x7F80) == 0x7F80).any()
    return not dtype.startswith("float") or bool(np.isfinite(np.frombuffer(whole, dtype)).all())


def _not_finite(block: SavedBlock) -> str:
    ends = (at + size for at, size in zip(block.offsets, block.sizes, strict=True))
    return f"{block.tensor[:80]}{elements(block.offsets, ends)} holds NaN or infinity"


def _unlike(block: SavedBlock) -> str:
    return f"{block.file}: the bytes of {block.tensor} do not have their checksum"


def check_bytes(path: Path, told: Callable[[int], None] = lambda _: None) -> None:
    """DamagedCheckpoint where one is not as it was written. `told`: of how many were read since the last time."""
    manifest, _ = present(path)
    by_file: dict[str, list[SavedBlock]] = {}
    for block in manifest.blocks:
        by_file.setdefault(block.file, []).append(block)
    for name, blocks in by_file.items():
        try:
            with (path / name).open("rb") as file:
                for block in blocks:
                    _check_block(file, block, manifest.tensors[block.tensor].dtype, told)
        except OSError as error:
            raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
