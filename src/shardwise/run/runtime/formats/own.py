"""Our own checkpoints, seen as those of others: `step-00000020` with its manifest, or a folder of them (the newest)."""

from functools import partial
from pathlib import Path

from shardwise.run.runtime.checkpoints.folder import found_in, present
from shardwise.run.runtime.checkpoints.manifest import NAME
from shardwise.run.runtime.checkpoints.stated import ROLLOUT, SYNC
from shardwise.run.runtime.formats.stored import (
    OTHER,
    WEIGHT,
    StoragePlace,
    StoredBlock,
    StoredCheckpoint,
    StoredTensor,
)

PARAMETER = "parameter"


def is_own(path: Path) -> bool:
    return (path / NAME).is_file() or bool(found_in(path))


def read_own(path: Path) -> StoredCheckpoint:
    if not (path / NAME).is_file():
        path = found_in(path)[0]
    manifest, _ = present(path)
    blocks: dict[str, list[StoredBlock]] = {name: [] for name in manifest.tensors}
    for one in manifest.blocks:
        blocks[one.tensor].append(StoredBlock(one.offsets, one.sizes, partial(StoragePlace, path / one.file, one.at)))
    tensors = {}
    for name, form in manifest.tensors.items():
        kind, _, parameter = name.partition(".")
        known = OTHER if name.startswith((SYNC, ROLLOUT)) or " " in kind else WEIGHT if kind == PARAMETER else kind
        tensors[name] = StoredTensor(
            dtype=form.dtype, shape=form.shape, blocks=tuple(blocks[name]), kind=known,
            parameter=name if known == OTHER else parameter,
        )  # fmt: skip
    return StoredCheckpoint(
        path=path, format="shardwise", tensors=tensors, values={"of": manifest.of}, step=manifest.step
    )
