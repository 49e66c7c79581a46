"""Writers of the formats: a layout's tensors, piece by piece, in the files that the programs' own loaders read."""

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from shardwise.run.runtime.checkpoints.manifest import Manifest, SavedBlock, TensorForm, write_manifest
from shardwise.run.runtime.formats.layout import TargetLayout
from shardwise.run.runtime.formats.stored import PIECE, STEP, Array, StoredTensor, pieces, rows_of
from shardwise.run.runtime.weights import safetensors

UNIVERSAL = "0.19.0"
"""DeepSpeed's release whose form of universal checkpoints is written"""
LARGEST_FILE = 5 * 2**30
"""bytes of weights in one safetensors file, as Hugging Face cuts them"""
Read = Callable[[int], None]


def as_tensor(rows: Array, dtype: str) -> Tensor:
    found = torch.from_numpy(np.ascontiguousarray(rows).reshape(-1))
    return found.view(getattr(torch, dtype)).reshape(rows.shape)


def write(layout: TargetLayout, target: str, folder: Path, ranks: int, read: Read) -> None:
    writers = {"hugging-face": _hugging_face, "deepspeed-universal": _universal, "shardwise": _own}
    writers.get(target, _dcp)(layout, folder, ranks, read)
    if target == "megatron":
        _megatron(folder)


def shares(tensor: StoredTensor, ranks: int) -> Iterator[tuple[int, int, int]]:
    """(rank, first row, rows): rows dealt out as FSDP deals them, in pieces that fit the memory."""
    rows = tensor.shape[0] if tensor.shape else 1
    each = max(1, -(-rows // ranks))
    most = max(1, PIECE // max(1, tensor.bytes // max(1, rows)))
    for rank in range(ranks):
        end = min(rows, (rank + 1) * each)
        for first in range(rank * each, end, most):
            yield rank, first, min(most, end - first)


def _dcp(layout: TargetLayout, folder: Path, ranks: int, read: Read) -> None:
    places: dict[MetadataIndex, Any] = {}
    entries: dict[str, Any] = {}
    files = [(folder / f"__{rank}_0.distcp").open("xb") for rank in range(ranks)]
    try:
        for name, tensor in layout.tensors.items():
            chunks = []
            for rank, first, count in shares(tensor, ranks):
                rows = rows_of(tensor, first, count)
                read(rows.nbytes)
                offsets = torch.Size((first, *(0 for _ in tensor.shape[1:])) if tensor.shape else ())
                chunks.append(ChunkStorageMetadata(offsets=offsets, sizes=torch.Size(rows.shape)))
                index = MetadataIndex(name, offsets, len(chunks) - 1)
                places[index] = _saved(files[rank], as_tensor(rows, tensor.dtype))
            properties = TensorProperties(dtype=getattr(torch, tensor.dtype))
            entries[name] = TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)
        for name, value in layout.values.items():
            if name.endswith(f".{STEP}") and ".state." in name:
                value = torch.tensor(float(value))
                entries[name] = TensorStorageMetadata(
                    TensorProperties(dtype=torch.float32), torch.Size(()),
                    [ChunkStorageMetadata(offsets=torch.Size(()), sizes=torch.Size(()))],
                )  # fmt: skip
                places[MetadataIndex(name, torch.Size(()), 0)] = _saved(files[0], value)
            else:
                entries[name] = BytesStorageMetadata()
                places[MetadataIndex(name)] = _saved(files[0], value)
    finally:
        for file in files:
            file.close()
    with (folder / ".metadata").open("xb") as file:
        flat = {name: (name,) for name in entries}
        pickle.dump(Metadata(state_dict_metadata=entries, planner_data=flat, storage_data=places), file)


def _saved(file: Any, value: Any) -> _StorageInfo:
    packed = io.BytesIO()
    torch.save(value, packed)
    at = file.tell()
    file.write(packed.getbuffer())
    return _StorageInfo(file.name.rpartition("/")[2], at, packed.tell())


def _megatron(folder: Path) -> None:
    (folder / "metadata.json").write_bytes(
        msgspec.json.encode({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch",
                             "common_backend_version": 1})
    )  # fmt: skip


def _hugging_face(layout: TargetLayout, folder: Path, _ranks: int, read: Read) -> None:
    files: list[dict[str, StoredTensor]] = [{}]
    for name, tensor in layout.tensors.items():
        if files[-1] and sum(one.bytes for one in files[-1].values()) + tensor.bytes > LARGEST_FILE:
            files.append({})
        files[-1][name] = tensor
    places: dict[str, str] = {}
    for number, inside in enumerate(files, 1):
        file = "model.safetensors" if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        shapes = {name: (getattr(torch, one.dtype), one.shape) for name, one in inside.items()}
        safetensors.write(folder / file, shapes, lambda name: _rows(layout.tensors[name], read), {"format": "pt"})
        places |= dict.fromkeys(inside, file)
    if len(files) > 1:
        total = sum(one.bytes for one in layout.tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_bytes(msgspec.json.encode(index))


def _rows(tensor: StoredTensor, read: Read) -> Iterator[Tensor]:
    for first, count in pieces(tensor):
        rows = rows_of(tensor, first, count)
        read(rows.nbytes)
        yield as_tensor(rows, tensor.dtype)


def _universal(layout: TargetLayout, folder: Path, _ranks: int, read: Read) -> None:
    """A folder for each weight; whole tensors, one in memory at a time."""
    inside = folder / f"global_step{layout.step}_universal"
    for name, tensor in layout.tensors.items():
        _, _, rest = name.partition(".")
        parameter, _, kind = rest.rpartition(".")
        (inside / "zero" / parameter).mkdir(parents=True, exist_ok=True)
        rows = rows_of(tensor, 0, tensor.shape[0] if tensor.shape else 1)
        read(rows.nbytes)
        torch.save({"param": as_tensor(rows, tensor.dtype)}, inside / "zero" / parameter / f"{kind}.pt")
        torch.save(torch.tensor(float(layout.step or 0)), inside / "zero" / parameter / "step.pt")
    (folder / "latest_universal").write_text(inside.name)
    (folder / "latest").write_text(inside.name)
    ends = ("zero.", ".fp32")
    shapes = {
        name.removeprefix(ends[0]).removesuffix(ends[1]): torch.Size(one.shape)
        for name, one in layout.tensors.items()
        if name.endswith(ends[1])
    }
    # on the disk, not in memory: a model may be larger
    module = {
        name: torch.load(inside / "zero" / name / "fp32.pt", mmap=True, weights_only=True)["param"] for name in shapes
    }
    model = {
        "module": module, "global_steps": layout.step, "global_samples": 0, "skipped_steps": 0, "dp_world_size": 1,
        "mp_world_size": 1, "buffer_names": [], "param_shapes": [shapes], "ds_config": {}, "ds_version": UNIVERSAL,
        "universal_checkpoint_info": {"universal_checkpoint_version": 0.2},
    }  # fmt: skip
    torch.save(model, inside / "mp_rank_00_model_states.pt")
    torch.save(
        {"ds_version": UNIVERSAL, "param_groups": layout.values["param_groups"]}, inside / "zero" / "optimizer_state.pt"
    )


def _own(layout: TargetLayout, folder: Path, ranks: int, read: Read) -> None:
    step = layout.step or 0
    inside = folder / f"step-{step:08}"
    inside.mkdir()
    blocks: list[SavedBlock] = []
    files = {rank: (inside / f"rank-{rank:05}.bin").open("xb") for rank in range(ranks)}
    try:
        for name, tensor in layout.tensors.items():
            for rank, first, count in shares(tensor, ranks):
                rows = rows_of(tensor, first, count)
                read(rows.nbytes)
                content, at = rows.tobytes(), files[rank].tell()
                files[rank].write(content)
                offsets = (first, *(0 for _ in tensor.shape[1:])) if tensor.shape else ()
                blocks.append(SavedBlock(
                    tensor=name, offsets=offsets, sizes=tuple(rows.shape), file=f"rank-{rank:05}.bin", at=at,
                    bytes=len(content), sha256=hashlib.sha256(content).hexdigest(),
                ))  # fmt: skip
        sizes = {f"rank-{rank:05}.bin": file.tell() for rank, file in files.items()}
    finally:
        for file in files.values():
            file.close()
    write_manifest(inside, Manifest(
        step=step, saved=datetime.now(UTC).isoformat(timespec="seconds"), ranks=ranks, of={},
        tensors={name: TensorForm(dtype=one.dtype, shape=one.shape) for name, one in layout.tensors.items()},
        files=sizes, blocks=tuple(blocks),
    ))  # fmt: skip
