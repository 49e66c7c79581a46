"""Which checkpoint a run goes on from: the first rank chooses, all load it, and if one of them finds it damaged, all go
to the one before. Nothing is deleted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shardwise.measured.record.writer import say
from shardwise.run.runtime.checkpoints.agree import AgreedRefusal, Agreement
from shardwise.run.runtime.checkpoints.folder import found_in, present
from shardwise.run.runtime.checkpoints.identity import differences, listed
from shardwise.run.runtime.checkpoints.manifest import (
    NAME,
    DamagedCheckpoint,
    Manifest,
    TensorForm,
    read_manifest,
    refuse_unlike,
)
from shardwise.run.runtime.checkpoints.mark import PassedOver
from shardwise.run.runtime.checkpoints.seen import appears, patience_of
from shardwise.run.runtime.checkpoints.state import THIS_RUN, forms_of, load_listed, refuse_other_workers
from shardwise.run.runtime.train.engine import TrainingEngine


def resume(
    engine: TrainingEngine, folder: Path, of: Mapping[str, Any], agreed: Agreement, *, force: bool = False
) -> Path | None:
    """The one that was loaded; None: begin anew. Differences and damage are told by the first rank."""
    damaged: dict[str, str] = {}
    said: set[str] = set()
    while True:
        name, seal, told, changed = agreed.by_first(lambda: _choose(folder, of, damaged, force))
        if agreed.rank == 0:
            _tell(told, said)
        if not name:
            return None
        try:
            _load(engine, folder / name, seal, agreed, changed=changed)
            return folder / name
        except DamagedCheckpoint as why:
            damaged[name] = str(why)


def _choose(
    folder: Path, of: Mapping[str, Any], damaged: dict[str, str], force: bool
) -> tuple[str, str, list[str], bool]:
    """Its name, its manifest's checksum, what is to be told, and whether it is of another run; no name where there is
    none."""
    told: list[str] = []
    why_not = ""
    for path in found_in(folder):
        try:
            if path.name in damaged:
                raise DamagedCheckpoint(damaged[path.name])
            manifest, seal = present(path)
        except DamagedCheckpoint as why:
            why_not = why_not or f"{path.name}: {why}"
            how = "passed over" if isinstance(why, PassedOver) else "damaged"
            told.append(f"checkpoints: {path.name} is {how}: {why}; going back to the one before")
            continue
        changed = differences(manifest.of, of)
        if changed and not force:
            raise AgreedRefusal(
                f"checkpoints: {path.name} is of another run ({listed(changed)}); write the old value, another folder, "
                "or --force to go on all the same"
            )
        told += [f"checkpoints: going on from {path.name} by force, though {one}" for one in changed]
        return path.name, seal, told, bool(changed)
    if told:
        raise AgreedRefusal(
            f"checkpoints: none of {len(told)} in {str(folder)!r} is whole ({why_not}); write another folder to begin "
            "anew, or move them away"
        )
    return "", "", told, False


def _tell(lines: list[str], said: set[str]) -> None:
    for line in lines:
        if line not in said:
            say(line)
    said.update(lines)


def _load(engine: TrainingEngine, path: Path, seal: str, agreed: Agreement, *, changed: bool) -> None:
    """All ranks hold the same manifest before one of them changes a number."""
    found: list[Manifest] = []

    def look() -> None:
        if not appears(path / NAME, patience_of(agreed)):
            raise DamagedCheckpoint(f"{NAME} is not to be seen")
        manifest, mine = read_manifest(path)
        if mine != seal:
            raise DamagedCheckpoint(f"{NAME} is another than the first rank's")
        found.append(manifest)

    if problems := agreed.problems(look):
        rank, why = next(iter(problems.items()))
        raise DamagedCheckpoint(f"on rank {rank} {why}")
    wanted = forms_of(engine)
    if problems := agreed.problems(lambda: refuse_other_workers(path, found[0], wanted)):
        raise AgreedRefusal(next(iter(problems.values())))
    if changed:
        # by force: numbers of another dtype are converted
        wanted = {name: replace(form, dtype=_dtype(found[0], name, form)) for name, form in wanted.items()}
    if problems := agreed.problems(lambda: refuse_unlike(found[0].tensors, wanted, THIS_RUN)):
        why = next(iter(problems.values()))
        if changed:
            raise AgreedRefusal(f"checkpoints: {path.name} does not fit this run ({why}); write another folder")
        raise DamagedCheckpoint(why)
    load_listed(engine, path, found[0], agreed.group)


def _dtype(manifest: Manifest, name: str, wanted: TensorForm) -> str:
    return manifest.tensors.get(name, wanted).dtype
