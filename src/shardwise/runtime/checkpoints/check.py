"""Are the bytes of a checkpoint those that were written? Reads all of them."""

import hashlib
from pathlib import Path
from typing import BinaryIO

from shardwise.runtime.checkpoints.folder import present
from shardwise.runtime.checkpoints.manifest import DamagedCheckpoint, SavedBlock


def read_block(file: BinaryIO, block: SavedBlock) -> bytearray:
    """Its bytes, if they have their checksum."""
    content = bytearray(block.bytes)
    file.seek(block.at)
    got = file.readinto(content)  # type: ignore[attr-defined]
    if got != block.bytes or hashlib.sha256(content).hexdigest() != block.sha256:
        raise DamagedCheckpoint(f"{block.file}: the bytes of {block.tensor} do not have their checksum")
    return content


def check_bytes(path: Path) -> None:
    """DamagedCheckpoint where one is not as it was written."""
    manifest, _ = present(path)
    by_file: dict[str, list[SavedBlock]] = {}
    for block in manifest.blocks:
        by_file.setdefault(block.file, []).append(block)
    for name, blocks in by_file.items():
        try:
            with (path / name).open("rb") as file:
                for block in blocks:
                    read_block(file, block)
        except OSError as error:
            raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
