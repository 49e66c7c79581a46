"""`--export`: a checkpoint as safetensors and config.json, as transformers reads them, or where adapters were trained
those alone, as PEFT reads them; one process, file by file."""

import shutil
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load

from shardwise.run.runtime.checkpoints.folder import present
from shardwise.run.runtime.checkpoints.storage import BlockReader
from shardwise.run.runtime.net.part import ALPHA_OVER_RANK
from shardwise.run.runtime.train.quiet import quiet
from shardwise.run.runtime.weights.configuration import configuration
from shardwise.run.runtime.weights.folder import INDEX, SINGLE
from shardwise.run.runtime.weights.safetensors import write
from shardwise.run.runtime.weights.stored import FileTensor, adapter_tensors, stored_tensors
from shardwise.spec.arch.tuned import adapted_tensors, module_of
from shardwise.spec.model import Model
from shardwise.spec.tuning import Adapters
from shardwise.whole_file import moved_to

FILE_BYTES = 5 * 10**9
ADAPTERS = "adapter_model.safetensors"


def check_export(model: Model, out: Path) -> None:
    """Before the first step: what would be refused after the last."""
    if model.tuning is not None and model.tuning.adapters is None:
        raise ValueError("export: a checkpoint lacks what --freeze leaves as it was; write --export without --freeze")
    _written(model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"export: {str(out)!r} is there and not empty; write a new folder")


def export(
    model: Model, checkpoint: Path, out: Path, seq: int, *, base: str = "", file_bytes: int = FILE_BYTES
) -> None:
    """Whole or not there: written beside and moved. `base`: where the frozen weights came from."""
    check_export(model, out)
    beside = out.with_name(f".{out.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    manifest, _ = present(checkpoint)
    reader, groups = BlockReader(checkpoint, manifest), list(_groups(model))
    dtypes: dict[str, torch.dtype] = {
        group[0].name: getattr(torch, manifest.tensors[f"parameter.{group[0].runtime}"].dtype) for group in groups
    }
    adapters = model.tuning.adapters if model.tuning is not None else None
    files = [groups] if adapters else _files(groups, dtypes, file_bytes)
    places: dict[str, str] = {}
    for number, held in enumerate(files, 1):
        file = (
            ADAPTERS if adapters else SINGLE if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        )
        shapes = {name: (dtypes[g[0].name], g[0].stored_shape) for g in held for name in g[0].names()}
        write(beside / file, shapes, _TensorReader(reader, held, dtypes), {"format": "pt"})
        places |= dict.fromkeys(shapes, file)
    if len(files) > 1:
        size = sum(_bytes(g[0], dtypes) for g in groups)
        _json(beside / INDEX, {"metadata": {"total_size": size}, "weight_map": places})
    if adapters:
        _json(beside / "adapter_config.json", _adapter_configuration(model, adapters, base))
    else:
        _json(beside / "config.json", configuration(model, seq))
    if out.exists():
        out.rmdir()
    beside.rename(out)


def _written(model: Model) -> dict[str, FileTensor]:
    return stored_tensors(model) if model.tuning is None else adapter_tensors(model)


def _adapter_configuration(model: Model, adapters: Adapters, base: str) -> dict[str, Any]:
    modules = {module_of(t) for kind in set(model.pattern) for t in adapted_tensors(model, kind)}
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base or model.name,
        "r": adapters.rank, "lora_alpha": ALPHA_OVER_RANK * adapters.rank, "lora_dropout": 0.0, "bias": "none",
        "fan_in_fan_out": False, "target_modules": sorted(modules), "inference_mode": True,
    }  # fmt: skip


def _groups(model: Model) -> Iterator[tuple[FileTensor, ...]]:
    """The runtime's tensors that one stored name, or one set of experts, is made of."""
    found: dict[str, list[FileTensor]] = {}
    for one in _written(model).values():
        found.setdefault(one.name, []).append(one)
    yield from map(tuple, found.values())


def _bytes(one: FileTensor, dtypes: dict[str, torch.dtype]) -> int:
    return len(one.names()) * prod(one.stored_shape) * dtypes[one.name].itemsize


def _files(
    groups: list[tuple[FileTensor, ...]], dtypes: dict[str, torch.dtype], most: int
) -> list[list[tuple[FileTensor, ...]]]:
    files, size = list[list[tuple[FileTensor, ...]]]([[]]), 0
    for group in groups:
        more = _bytes(group[0], dtypes)
        if files[-1] and size + more > most:
            files.append([])
            size = 0
        files[-1].append(group)
        size += more
    return files


class _TensorReader:
    """Stored tensors by name, from a checkpoint; a set of experts is read once."""

    def __init__(
        self, reader: BlockReader, groups: list[tuple[FileTensor, ...]], dtypes: dict[str, torch.dtype]
    ) -> None:
        self.reader, self.dtypes = reader, dtypes
        self.group = {name: group for group in groups for name in group[0].names()}
        self._kept: tuple[str, Tensor] = ("", torch.empty(0))

    def __call__(self, name: str) -> Tensor:
        group = self.group[name]
        first = group[0]
        if first.experts:
            if self._kept[0] != first.name:
                self._kept = first.name, self._read(first)
            return self._kept[1][first.names().index(name)]
        whole = torch.cat([self._read(one) for one in group])
        return whole.t().contiguous() if first.turned else whole

    def _read(self, one: FileTensor) -> Tensor:
        key = f"parameter.{one.runtime}"
        state = {key: torch.empty(one.shape, dtype=self.dtypes[one.name])}
        with quiet():
            load(state, storage_reader=self.reader, no_dist=True)
        return state[key]


def _json(path: Path, data: dict[str, Any]) -> None:
    with moved_to(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(data), indent=2))
