"""Checkpoints that are not gone on from, though every byte is as it was written: the first step from them was not
finite. They stay; a file in them says why."""

from pathlib import Path

import msgspec

from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint, ordinary_size
from shardwise.whole_file import moved_to

MARK = "passed-over.json"
_MOST = 1 << 12
"""bytes of it that are read"""


class PassedOver(DamagedCheckpoint):
    """Why a whole checkpoint is not gone on from."""


class _Mark(msgspec.Struct, frozen=True):
    why: str


def passed_over(path: Path, why: str) -> Path:
    """Marks it; the file."""
    with moved_to(path / MARK) as file:
        file.write(msgspec.json.encode(_Mark(why)))
    return path / MARK


def refuse_marked(path: Path) -> None:
    try:
        ordinary_size(path / MARK)
        with (path / MARK).open("rb") as file:
            why = msgspec.json.decode(file.read(_MOST), type=_Mark).why
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        why = "it is marked so"
    raise PassedOver(f"{why[:200]!a}; delete {str(path / MARK)!r} to go on from it all the same")
