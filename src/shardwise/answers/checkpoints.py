"""`checkpoints`: what is in a folder of checkpoints, whether it is whole, and which of it was deleted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from shardwise.answers.answer import Answer, Cell, FactList, Part, Table
from shardwise.run.runtime.checkpoints.check import check_bytes
from shardwise.run.runtime.checkpoints.folder import delete, found_in, present
from shardwise.run.runtime.checkpoints.lock import LockOwner, lock, owner_of
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.opened import format_of, open_checkpoint
from shardwise.run.runtime.formats.stored import MASTER, WEIGHT
from shardwise.run.runtime.formats.verify import problems_of, untrained
from shardwise.units import memory_text


class CheckpointRow(Struct, kw_only=True):
    name: str
    step: int | None = None
    saved: str | None = None
    ranks: int | None = None
    bytes: int | None = None
    of: Mapping[str, Any] | None = None
    """what was trained, as the run stated it"""
    format: str = "shardwise"
    tensors: int | None = None
    weights: int | None = None
    moments: Sequence[str] = ()
    """kinds of optimizer state"""
    remarks: Sequence[str] = ()
    problems: Sequence[str] = ()
    """all that was found; `damage` is the first"""
    damage: str | None = None


class CheckpointsAnswer(Answer, frozen=True, kw_only=True):
    folder: str
    verified: bool
    """every byte was compared with its checksum"""
    checkpoints: Sequence[CheckpointRow]
    deleted: Sequence[str]
    locked_by: LockOwner | None

    def parts(self) -> Iterator[Part]:
        title = f"{len(self.checkpoints)} checkpoint{'' if len(self.checkpoints) == 1 else 's'} in {self.folder}"
        heads = ("name", "saved (UTC)", "state", "ranks", "size")
        yield Table(title, heads, list(map(self._cells, self.checkpoints)), words=3, breaks=2, bars=("size",))
        facts: list[tuple[str, Cell]] = [("deleted", ", ".join(self.deleted))] if self.deleted else []
        facts += [("locked", f"by {self.locked_by.text()}")] if self.locked_by is not None else []
        if facts:
            yield FactList("folder", facts)
        for row in self.checkpoints:
            if row.tensors is not None:
                yield FactList(row.name, _foreign_facts(row))

    def _cells(self, row: CheckpointRow) -> list[Cell]:
        saved = row.saved and row.saved[:16].replace("T", " ")
        return [row.name, saved, self._state(row), row.ranks, None if row.bytes is None else memory_text(row.bytes)]

    def _state(self, row: CheckpointRow) -> str:
        if row.damage:
            return f"damaged: {row.damage}"
        if row.tensors is not None:
            return f"{row.format}: {'every tensor whole and finite' if self.verified else 'every tensor has its place'}"
        whole = "every byte as written" if self.verified else "every file there"
        return whole if row.of else f"{whole}; it states no model, so its tensors were not compared with one"

    @property
    def exit_code(self) -> int:
        return 1 if any(row.damage is not None for row in self.checkpoints) else 0


ANSWERS = (CheckpointsAnswer,)


def checkpoints_answer(folder: Path, *, verify: bool, keep: int, read: Callable[[int], None]) -> CheckpointsAnswer:
    """`keep`: whole ones that stay, older ones are deleted, 0: all stay; `read`: called with bytes that were
    compared."""
    if (inside := found_in(folder) if folder.is_dir() else []) or (known := format_of(folder)) is None:
        rows = [_looked_at(path, read if verify else None) for path in inside]
    elif keep:
        raise ValueError(f"keep: only checkpoints of `run` are deleted, {folder.name!r} is {known.name}; leave it out")
    else:
        rows = [_foreign(folder, read if verify else None)]
    deleted = _pruned(folder, [row.name for row in rows if row.damage is None][keep:]) if keep else []
    return CheckpointsAnswer(
        folder=str(folder), verified=verify, checkpoints=[row for row in rows if row.name not in deleted],
        deleted=deleted, locked_by=owner_of(folder),
    )  # fmt: skip


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


def _foreign(path: Path, compared: Callable[[int], None] | None) -> CheckpointRow:
    row = CheckpointRow(name=path.name)
    try:
        found = open_checkpoint(path)
        row.step, row.format, row.tensors = found.step, found.format, len(found.tensors)
        row.bytes = sum(one.bytes for one in found.tensors.values())
        row.weights, row.moments = len(found.of_kind(WEIGHT) or found.of_kind(MASTER)), found.moments
        frozen = untrained(found)
        lost = [f"{len(frozen):,} weights have no moments, such as {name}: frozen, or lost" for name in frozen[:1]]
        row.remarks = [*found.remarks, *lost]
        row.problems = problems_of(found, read=compared)
        row.damage = next(iter(row.problems), None)
    except DamagedCheckpoint as why:
        row.damage = str(why)
    return row


def _foreign_facts(row: CheckpointRow) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [
        ("step", row.step), ("tensors", row.tensors), ("weights", row.weights),
        ("optimizer state", ", ".join(row.moments) or "none"),
    ]  # fmt: skip
    facts += [("remark", text) for text in row.remarks]
    return facts + [("problem", text) for text in row.problems]


def _pruned(folder: Path, names: list[str]) -> list[str]:
    """Not while a run has the folder: `run --keep` does the same there."""
    held = lock(folder, patience_s=0.0)
    try:
        for name in names:
            delete(folder / name)
    finally:
        held.release()
    return names
