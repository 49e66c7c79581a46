"""The folder of a run's checkpoints: their names, which are whole, and how one comes and goes.

Names that begin with a dot are not checkpoints: one being written, one being deleted, the lock.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from shardwise.run.runtime.checkpoints.cover import refuse_uncovered
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint, Manifest, ordinary_size, read_manifest
from shardwise.run.runtime.checkpoints.mark import refuse_marked
from shardwise.run.runtime.checkpoints.stated import refuse_unstated

_STEP = re.compile(r"step-(\d{8,})")
_GOING = ".deleted-"


def final_name(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}"


def beside(folder: Path, step: int) -> Path:
    """Where it is written."""
    return folder / f".step-{step:08}"


def step_of(path: Path) -> int:
    """By its name, which `present` holds against its manifest."""
    return int(path.name.removeprefix("step-"))


def found_in(folder: Path) -> list[Path]:
    """What has the name of a checkpoint, newest first."""
    if not folder.is_dir():
        return []
    named = [(int(match[1]), path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
    return [path for _, path in sorted(named, reverse=True)]


def present(path: Path) -> tuple[Manifest, str]:
    """Its manifest, where every file of it is there in its length and every tensor once and whole; DamagedCheckpoint
    where not, PassedOver where it is marked."""
    manifest, seal = read_manifest(path)
    missing(path, manifest.files)
    if path.name.lstrip(".") != f"step-{manifest.step:08}":
        raise DamagedCheckpoint(f"its manifest is of step {manifest.step}")
    refuse_uncovered(manifest)
    refuse_unstated(manifest)
    refuse_marked(path)
    return manifest, seal


def missing(path: Path, files: dict[str, int]) -> None:
    for name, size in files.items():
        try:
            there = ordinary_size(path / name)
        except FileNotFoundError:
            raise DamagedCheckpoint(f"{name} is missing") from None
        except OSError as error:
            raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
        if there != size:
            raise DamagedCheckpoint(f"{name} has {there:,} bytes, written were {size:,}")


def newest(folder: Path) -> Path | None:
    """The newest one whose files are all there."""
    return next(whole_ones(folder), None)


def whole_ones(folder: Path) -> Iterator[Path]:
    """Newest first."""
    for path in found_in(folder):
        try:
            present(path)
        except DamagedCheckpoint:
            continue
        yield path


def give_final_name(folder: Path, step: int) -> Path:
    """Of one that is whole. What had the name - something damaged - is set aside, not deleted."""
    final = final_name(folder, step)
    if final.is_symlink() or final.exists():
        number = 1
        while (aside := folder / f"{final.name}.aside-{number}").exists():
            number += 1
        final.rename(aside)
    beside(folder, step).rename(final)
    flush(folder)
    return final


def flush(folder: Path) -> None:
    """A name survives the machine's death when its folder is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def delete(path: Path) -> None:
    """First it loses its name, so that nobody finds half of it."""
    going = path.with_name(_GOING + path.name)
    shutil.rmtree(going, ignore_errors=True)
    path.rename(going)
    shutil.rmtree(going)


def prune(folder: Path, keep: int) -> list[str]:
    """Deletes whole checkpoints but the newest `keep`; damaged ones stay, since they count for nothing."""
    old = list(whole_ones(folder))[keep:]
    for path in old:
        delete(path)
    return [path.name for path in old]


def sweep(folder: Path) -> None:
    """What dead runs left half written or half deleted; only for the holder of the lock."""
    for pattern in (".step-*", f"{_GOING}*", ".seen-*"):
        for path in folder.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
