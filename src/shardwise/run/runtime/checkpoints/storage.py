"""How DCP's plans become files: each rank's blocks one after another as bare numbers, and one manifest.

torch's own storage keeps its metadata as a pickle, which runs what it is told to when it is read.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from shardwise.run.runtime.checkpoints.check import read_block
from shardwise.run.runtime.checkpoints.folder import beside, flush, give_final_name, missing
from shardwise.run.runtime.checkpoints.manifest import (
    DamagedCheckpoint,
    Manifest,
    SavedBlock,
    TensorForm,
    write_manifest,
)


class BlockWriter(StorageWriter):
    """Of one checkpoint; every rank has its own. `check`: that the folder is still the one this run has."""

    def __init__(self, folder: Path, step: int, rank: int, of: Mapping[str, Any], check: Callable[[], None]) -> None:
        self.folder, self.step, self.rank, self.of, self.check = folder, step, rank, of, check
        self.path = beside(folder, step)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing is kept between two."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The rank is known."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.check()
        self.path.mkdir(exist_ok=True)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        name, at, written = f"rank-{self.rank:05}.bin", 0, list[WriteResult]()
        if plan.items:
            self.check()
            with (self.path / name).open("xb") as file:
                for item in plan.items:
                    tensor = planner.resolve_data(item)
                    assert isinstance(tensor, Tensor), "a checkpoint holds tensors only"
                    content = _bytes(tensor)
                    file.write(content)
                    index = item.index
                    offsets = tuple(index.offset) if index.offset is not None else (0,) * tensor.dim()
                    block = SavedBlock(
                        tensor=index.fqn, offsets=offsets, sizes=tuple(tensor.shape), file=name, at=at,
                        bytes=len(content), sha256=hashlib.sha256(content).hexdigest(),
                    )  # fmt: skip
                    written.append(WriteResult(index=index, size_in_bytes=len(content), storage_data=block))
                    at += len(content)
                file.flush()
                os.fsync(file.fileno())
        return _done(written)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the first rank, when the others' parts are written: it looks for all of them before it names the step."""
        blocks = tuple(result.storage_data for of_rank in results for result in of_rank)
        files: dict[str, int] = {}
        for block in blocks:
            files[block.file] = block.at + block.bytes
        missing(self.path, files)
        forms = {
            name: form_of(known.properties.dtype, known.size)  # type: ignore[union-attr]
            for name, known in metadata.state_dict_metadata.items()
        }
        manifest = Manifest(
            step=self.step, saved=datetime.now(UTC).isoformat(timespec="seconds"), ranks=len(results),
            of=dict(self.of), tensors=forms, files=files, blocks=blocks,
        )  # fmt: skip
        self.check()
        write_manifest(self.path, manifest)
        flush(self.path)
        self.check()
        give_final_name(self.folder, self.step)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return Path(checkpoint_id).name != ""


class BlockReader(StorageReader):
    """Reads what a manifest lists, and checks every block it reads."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.places = {_index(block): block for block in manifest.blocks}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing is kept between two."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        chunks: dict[str, list[ChunkStorageMetadata]] = {}
        for block in self.manifest.blocks:
            chunk = ChunkStorageMetadata(offsets=torch.Size(block.offsets), sizes=torch.Size(block.sizes))
            chunks.setdefault(block.tensor, []).append(chunk)
        known: dict[str, Any] = {
            name: TensorStorageMetadata(
                TensorProperties(dtype=getattr(torch, form.dtype)), torch.Size(form.shape), chunks.get(name, [])
            )
            for name, form in self.manifest.tensors.items()
        }
        return Metadata(state_dict_metadata=known, storage_data=self.places)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The manifest is known."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted: dict[str, dict[int, list[ReadItem]]] = {}
        for item in plan.items:
            block = self.places[item.storage_index]
            wanted.setdefault(block.file, {}).setdefault(block.at, []).append(item)
        for name, by_place in sorted(wanted.items()):
            try:
                with (self.path / name).open("rb") as file:
                    for _, items in sorted(by_place.items()):
                        block = self.places[items[0].storage_index]
                        content = read_block(file, block, self.manifest.tensors[block.tensor].dtype)
                        self._place(_tensor(content, block, self.manifest), items, planner)
            except OSError as error:
                raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
        return _done(None)

    @staticmethod
    def _place(tensor: Tensor, items: list[ReadItem], planner: LoadPlanner) -> None:
        for item in items:
            target = planner.resolve_tensor(item).detach()
            target.copy_(narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths))
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return Path(checkpoint_id).name != ""


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _tensor(content: bytearray, block: SavedBlock, manifest: Manifest) -> Tensor:
    dtype = getattr(torch, manifest.tensors[block.tensor].dtype)
    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return flat.view(block.sizes)


def form_of(dtype: torch.dtype, shape: torch.Size) -> TensorForm:
    return TensorForm(dtype=str(dtype).removeprefix("torch."), shape=tuple(shape))


def _index(block: SavedBlock) -> MetadataIndex:
    return MetadataIndex(block.tensor, torch.Size(block.offsets))
