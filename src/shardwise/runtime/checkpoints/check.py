"""Are the bytes of a checkpoint those that were written? Reads all of them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from shardwise.runtime.checkpoints.folder import present
from shardwise.runtime.checkpoints.manifest import DamagedCheckpoint, SavedBlock

PIECE = 1 << 24
"""bytes read at a time"""


def read_block(file: BinaryIO, block: SavedBlock) -> bytearray:
    """Its bytes, if they have their checksum."""
    content = bytearray(block.bytes)
    file.seek(block.at)
    got = file.readinto(content)  # type: ignore[attr-defined]
    if got != block.bytes or hashlib.sha256(content).hexdigest() != block.sha256:
        raise DamagedCheckpoint(_unlike(block))
    return content


def _check_block(file: BinaryIO, block: SavedBlock, told: Callable[[int], None]) -> None:
    """The same a piece at a time: a file may say that it is larger than any memory."""
    known, left = hashlib.sha256(), block.bytes
    file.seek(block.at)
    while left and (part := file.read(min(left, PIECE))):
        known.update(part)
        left -= len(part)
        told(len(part))
    if left or known.hexdigest() != block.sha256:
        raise DamagedCheckpoint(_unlike(block))


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
                    _check_block(file, block, told)
        except OSError as error:
            raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
