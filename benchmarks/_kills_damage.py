"""Checkpoints that are damaged on purpose: kinds of damage, and bits flipped one at a time."""

import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from _kills_resealed import RESEALED
from shardwise.run.runtime.checkpoints.manifest import NAME

Damage = Callable[[Path], None]


class _Command:
    """What a pickle from elsewhere may hold."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


def _part(path: Path, number: int = 0) -> Path:
    return sorted(path.glob("*.bin"))[number]


def _cut(file: Path, left: float) -> None:
    os.truncate(file, int(file.stat().st_size * left))


def _zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))


def _file_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("not a folder")


def _emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def _older_part(path: Path) -> None:
    """Of the right size, from the step before."""
    before = sorted(path.parent.glob("step-*"))[-2]
    shutil.copy(_part(before), _part(path))


def _pickled(path: Path) -> None:
    """As torch's own storage would leave it; whoever reads it runs the command."""
    _emptied(path)
    (path / ".metadata").write_bytes(pickle.dumps(_Command(f"touch {path.parent.with_suffix('.executed')}")))


KINDS: dict[str, Damage] = {
    "first part cut in half": lambda p: _cut(_part(p), 0.5),
    "last part one byte short": lambda p: os.truncate(_part(p, -1), _part(p, -1).stat().st_size - 1),
    "last part empty": lambda p: _cut(_part(p, -1), 0.0),
    "first part missing": lambda p: _part(p).unlink(),
    "last part missing": lambda p: _part(p, -1).unlink(),
    "first part zeroed": lambda p: _zeroed(_part(p)),
    "last part zeroed": lambda p: _zeroed(_part(p, -1)),
    "a bit of the first part": lambda p: flip(_part(p), 4 * _part(p).stat().st_size),
    "a bit of the last part": lambda p: flip(_part(p, -1), 5),
    "a part of the step before": _older_part,
    "manifest missing": lambda p: (p / NAME).unlink(),
    "manifest empty": lambda p: _cut(p / NAME, 0.0),
    "manifest cut in half": lambda p: _cut(p / NAME, 0.5),
    "manifest zeroed": lambda p: _zeroed(p / NAME),
    "a bit of the manifest": lambda p: flip(p / NAME, 4 * (p / NAME).stat().st_size),
    "folder emptied": _emptied,
    "a file in its place": _file_in_its_place,
    "a pickle from elsewhere": _pickled,
    **RESEALED,
}


def some_bits(path: Path, count: int, draw: random.Random) -> list[tuple[Path, int]]:
    """Of all files, each as often as its size says, the manifest as often as all parts together."""
    parts = sorted(path.glob("*.bin"))
    found = []
    for number in range(count):
        file = path / NAME if number % 2 else draw.choices(parts, [part.stat().st_size for part in parts])[0]
        found.append((file, draw.randrange(8 * file.stat().st_size)))
    return found
