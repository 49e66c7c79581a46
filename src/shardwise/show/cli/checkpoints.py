"""`shardwise checkpoints`: what is in a folder of checkpoints, whether it is whole, and which of it may go."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import Struct

from shardwise.run.runtime.checkpoints.check import check_bytes
from shardwise.run.runtime.checkpoints.folder import delete, found_in, present
from shardwise.run.runtime.checkpoints.lock import lock, owner_of
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_json, print_table
from shardwise.show.cli._progress import bar
from shardwise.units import memory_text

DAMAGED = 1


def checkpoints(
    folder: Annotated[Path, Parameter(help="As given to `run --checkpoints`.")],
    /,
    *,
    verify: Annotated[bool, Parameter(negative=(), help="Read every byte and compare it with its checksum.")] = False,
    keep: Annotated[
        int,
        Parameter(help="Keep this many of the newest whole ones, delete older; 0: delete none."),
        within(0, cure="a whole number of 1 or more, or 0 to delete none"),
    ] = 0,
    json: Json = False,
) -> int:
    """Lists checkpoints, newest first. Exit code 1 when one is damaged; damaged ones are never deleted."""
    if not folder.is_dir():
        raise ValueError(f"folder: {str(folder)!r} is not a folder; write the one given to run --checkpoints")
    with bar("MiB compared") as told:
        read = [0]

        def compared(size: int) -> None:
            read[0] += size
            told(read[0] >> 20, 0)

        rows = [_looked_at(path, compared if verify else None) for path in found_in(folder)]
    deleted = _pruned(folder, [row.name for row in rows if row.damage is None][keep:]) if keep else []
    rows = [row for row in rows if row.name not in deleted]
    owner = owner_of(folder)
    if json:
        print_json({
            "folder": str(folder), "verified": verify, "checkpoints": rows, "deleted": deleted, "locked_by": owner,
        })  # fmt: skip
    else:
        _show(folder, rows, "every byte as written" if verify else "every file there")
        facts = [("deleted", ", ".join(deleted))] if deleted else []
        facts += [("locked", f"by {owner.text()}")] if owner is not None else []
        if facts:
            print_gap()
            print_facts("", facts)
    return DAMAGED if any(row.damage is not None for row in rows) else 0


class CheckpointRow(Struct, kw_only=True):
    name: str
    step: int | None = None
    saved: str | None = None
    ranks: int | None = None
    bytes: int | None = None
    of: dict[str, Any] | None = None
    damage: str | None = None


def _looked_at(path: Path, compared: Callable[[int], None] | None) -> CheckpointRow:
    """`compared`: told of bytes that were read and held against their checksum; None: they are not."""
    found = CheckpointRow(name=path.name)
    try:
        manifest, _ = present(path)
        found.step, found.saved, found.ranks = manifest.step, manifest.saved, manifest.ranks
        found.bytes, found.of = manifest.bytes, manifest.of
        if compared is not None:
            check_bytes(path, compared)
    except DamagedCheckpoint as why:
        found.damage = str(why)
    return found


def _show(folder: Path, rows: list[CheckpointRow], whole: str) -> None:
    title = f"{len(rows)} checkpoint{'' if len(rows) == 1 else 's'} in {folder}"
    cells: list[Sequence[Cell]] = [
        (row.name, row.saved and row.saved[:16].replace("T", " "), _state(row, whole),
         row.ranks, None if row.bytes is None else memory_text(row.bytes))
        for row in rows
    ]  # fmt: skip
    print_table(title, ("name", "saved (UTC)", "state", "ranks", "size"), cells, words=3, breaks=2, bars=("size",))


def _state(row: CheckpointRow, whole: str) -> str:
    if row.damage:
        return f"damaged: {row.damage}"
    return whole if row.of else f"{whole}; it states no model, so its tensors were not compared with one"


def _pruned(folder: Path, names: list[str]) -> list[str]:
    """Not while a run has the folder: `run --keep` does the same there."""
    held = lock(folder, patience_s=0.0)
    try:
        for name in names:
            delete(folder / name)
    finally:
        held.release()
    return names
