"""A checkpoint in another format or layout: written beside, read back, compared bit for bit, then given its name."""

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.layout import WRITTEN, TargetLayout, layout_for
from shardwise.run.runtime.formats.opened import open_checkpoint
from shardwise.run.runtime.formats.stored import StoredCheckpoint, pieces, rows_of
from shardwise.run.runtime.formats.verify import problems_of

KEPT_WITH_WEIGHTS = ("config.json", "generation_config.json")


class Converted(Struct, kw_only=True):
    tensors: int
    bytes: int
    step: int | None
    left: dict[str, str] = field(default_factory=dict)
    """what was not carried over, and why"""


def convert(
    source: StoredCheckpoint, target: str, out: Path, ranks: int = 1, read: Callable[[int], None] = lambda _: None
) -> Converted:
    """ValueError where the target has no place for it; `out` is there only if it was read back equal."""
    from shardwise.run.runtime.formats.write import write

    if target not in WRITTEN:
        raise ValueError(f"to: {target!r} is not written; write one of {', '.join(WRITTEN)}")
    if out.exists() or out.is_symlink():
        raise ValueError(f"out: {str(out)!r} is there; write a path that is free")
    if found := problems_of(source):
        raise DamagedCheckpoint(f"{source.path.name}: {found[0]}")
    layout = layout_for(source, target)
    beside = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    try:
        beside.mkdir(parents=True)
        if target == "megatron":
            shutil.copyfile(source.path / "common.pt", beside / "common.pt")
        for name in KEPT_WITH_WEIGHTS if target == "hugging-face" else ():
            if (source.path / name).is_file():
                shutil.copyfile(source.path / name, beside / name)
        write(layout, target, beside, ranks, read)
        _prove(layout, open_checkpoint(beside, "out"), read)
        _flush(beside)
        os.rename(beside, out)
    except OSError as error:
        raise ValueError(f"out: {str(out)!r} cannot be written ({error.strerror}); write another path") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    total = sum(tensor.bytes for tensor in layout.tensors.values())
    return Converted(tensors=len(layout.tensors), bytes=total, step=layout.step, left=layout.left)


def _prove(layout: TargetLayout, written: StoredCheckpoint, read: Callable[[int], None]) -> None:
    if found := problems_of(written):
        raise DamagedCheckpoint(f"read back: {found[0]}")
    for name, tensor in layout.tensors.items():
        again = written.tensors.get(name)
        if again is None or (again.dtype, again.shape) != (tensor.dtype, tensor.shape):
            raise DamagedCheckpoint(f"read back: {name[:80]} is {'missing' if again is None else again.dtype}")
        for first, count in pieces(tensor):
            one, other = rows_of(tensor, first, count), rows_of(again, first, count)
            read(one.nbytes)
            if one.tobytes() != other.tobytes():
                raise DamagedCheckpoint(f"read back: {name[:80]} differs from row {first} on")
    for name, value in layout.values.items():
        if name in written.values and written.values[name] != value:
            raise DamagedCheckpoint(f"read back: {name[:80]} is {written.values[name]!r}, not {value!r}")


def _flush(folder: Path) -> None:
    """Every file on the disk before the folder has its name."""
    for path in (*(one for one in folder.rglob("*") if one.is_file()), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
