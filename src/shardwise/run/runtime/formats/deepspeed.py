"""DeepSpeed's checkpoints: ZeRO 1 to 3 as its ranks write them, and universal ones. Every file is of `torch.save`.

ZeRO 1 and 2 lay the weights of a group end to end and cut that over ranks; ZeRO 3 cuts every weight over all ranks
(deepspeed/utils/zero_to_fp32.py states both). Universal: a folder for each weight, a file for each kind of state.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from shardwise.programs.importers.plain_pickle import MadeObject
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.names import MOMENTS
from shardwise.run.runtime.formats.stored import (
    ITEM,
    MASTER,
    STEP,
    WEIGHT,
    StoragePlace,
    StoredBlock,
    StoredCheckpoint,
    StoredTensor,
)
from shardwise.run.runtime.formats.torch_zip import plain, read_saved

LATEST = ("latest_universal", "latest")
_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_LEFT_OUT = ("module", "optimizer", "param_shapes", "buffer_names", "param_names")
"""of a model's file: what is read as tensors, or lists them"""
MOST_RANKS = 1 << 16


def folder_of(path: Path) -> Path | None:
    """The folder of a step: the one named, or the one that `latest` names."""
    for name in LATEST:
        file = path / name
        if file.is_file() and file.stat().st_size < 4096:
            inside = file.read_text(encoding="utf-8", errors="replace").strip()
            if Path(inside).name == inside and (path / inside).is_dir():
                return path / inside
    if path.is_dir() and any(_MODEL.fullmatch(one.name) for one in path.iterdir()):
        return path
    return None


def is_deepspeed(path: Path) -> bool:
    return folder_of(path) is not None


def read_deepspeed(path: Path) -> StoredCheckpoint:
    folder = folder_of(path)
    assert folder is not None
    models = _numbered(folder, _MODEL)
    if len({mp for _, mp in models}) > 1:
        raise DamagedCheckpoint(
            f"{folder.name} is split over {len({mp for _, mp in models})} model-parallel ranks, and does not say how; "
            "write its universal form (deepspeed.checkpoint.ds_to_universal)"
        )
    head = read_saved(models[min(models)]).tree
    if not isinstance(head, dict):
        raise DamagedCheckpoint(f"{models[min(models)].name} holds no dict")
    found = StoredCheckpoint(path=folder, format="deepspeed", tensors={})
    found.values = {str(name): plain(value) for name, value in head.items() if name not in _LEFT_OUT}
    found.step = found.values.get("global_steps") if isinstance(found.values.get("global_steps"), int) else None
    if (folder / "zero").is_dir():
        found.format = "deepspeed universal"
        _universal(folder / "zero", found)
    elif parts := _numbered(folder, _OPTIMIZER):
        _zero(parts, head.get("param_shapes"), found)
    if not any(one.kind == MASTER for one in found.tensors.values()) or not found.format.endswith("3"):
        _weights(head.get("module"), found)
    return found


def _numbered(folder: Path, form: re.Pattern[str]) -> dict[tuple[int, int], Path]:
    named = [(match, path) for path in folder.iterdir() if (match := form.fullmatch(path.name))]
    return {(int(match[1] or 0), int(match[2])): path for match, path in named}


def _weights(module: Any, found: StoredCheckpoint) -> None:
    for name, tensor in module.items() if isinstance(module, dict) else ():
        if isinstance(tensor, StoredTensor):
            found.tensors[f"module.{name}"] = _named(tensor, WEIGHT, str(name))


def _named(tensor: StoredTensor, kind: str, parameter: str) -> StoredTensor:
    return StoredTensor(
        dtype=tensor.dtype, shape=tensor.shape, blocks=tensor.blocks, kind=kind, parameter=parameter, flat=tensor.flat
    )


def _universal(folder: Path, found: StoredCheckpoint) -> None:
    for path in sorted(folder.glob("*/*.pt")):
        parameter, kind = str(path.parent.relative_to(folder)), path.stem
        tree = read_saved(path).tree
        tensor = tree.get("param") if isinstance(tree, dict) else tree
        if kind == "step" and not isinstance(tensor, StoredTensor):
            found.values[f"zero.{parameter}.step"] = plain(tensor)
        elif isinstance(tensor, StoredTensor):
            known = MASTER if kind == "fp32" else kind
            found.tensors[f"zero.{parameter}.{kind}"] = _named(tensor, known, parameter)


def _zero(parts: Mapping[tuple[int, int], Path], shapes: Any, found: StoredCheckpoint) -> None:
    states: list[dict[str, Any]] = []
    for number, (rank, _) in enumerate(sorted(parts)):
        if rank != number:
            raise DamagedCheckpoint(f"the optimizer state of rank {number} is missing")
        tree = read_saved(parts[rank, 0]).tree
        state = tree.get("optimizer_state_dict") if isinstance(tree, dict) else None
        if not isinstance(state, dict):
            raise DamagedCheckpoint(f"{parts[rank, 0].name} holds no optimizer_state_dict")
        states.append(state)
    first = states[0]
    ranks = plain(first.get("partition_count", len(states)))
    ranks = max(ranks) if isinstance(ranks, list) else ranks
    if ranks != len(states):
        raise DamagedCheckpoint(f"it was written by {ranks} ranks, the state of {len(states)} is there")
    stage = 3 if "fp32_flat_groups" in first else 2
    found.format = f"deepspeed zero {_stage(first.get('zero_stage'), stage)}"
    groups = _shapes(shapes)
    kinds = [(MASTER, [_masters(one, stage) for one in states])]
    kinds += [(kind, [_moments(one, kind) for one in states]) for kind in MOMENTS if _moments(first, kind)]
    for kind, of_ranks in kinds:
        if len({len(one) for one in of_ranks}) != 1:
            raise DamagedCheckpoint(f"{kind}: ranks hold different numbers of groups")
        for name, tensor in _joined(groups, of_ranks, stage):
            found.tensors[f"zero.{name}.{kind}"] = _named(tensor, kind, name)
    base = _base(first).get("state")
    for number, state in base.items() if isinstance(base, dict) else ():
        if isinstance(state, dict) and "step" in state:
            found.values[f"optimizer.state.{number}.{STEP}"] = plain(state["step"])
    found.values["optimizer.param_groups"] = plain(_base(first).get("param_groups"))


def _stage(node: Any, otherwise: int) -> Any:
    return node.arguments[0] if isinstance(node, MadeObject) and node.arguments else otherwise if node is None else node


def _shapes(listed: Any) -> list[dict[str, tuple[int, ...]]]:
    try:
        groups = [{str(name): tuple(int(n) for n in shape) for name, shape in group.items()} for group in listed]
    except (AttributeError, TypeError, ValueError):
        raise DamagedCheckpoint("the model's file has no param_shapes, by which weights are found") from None
    if any(n < 0 for group in groups for shape in group.values() for n in shape):
        raise DamagedCheckpoint("param_shapes lists a shape that is not one")
    return groups


def _base(state: Mapping[str, Any]) -> dict[str, Any]:
    found = state.get("base_optimizer_state", state.get("optimizer_state_dict"))
    return found if isinstance(found, dict) else {}


def _masters(state: Mapping[str, Any], stage: int) -> list[StoredTensor]:
    listed = state.get("fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups")
    flat = listed if isinstance(listed, list) else []
    return [one for one in flat if isinstance(one, StoredTensor)]


def _moments(state: Mapping[str, Any], kind: str) -> list[StoredTensor]:
    base = _base(state).get("state")
    of_groups = [base[number] for number in sorted(base)] if isinstance(base, dict) else []
    found = [one.get(kind) for one in of_groups if isinstance(one, dict)]
    return [one for one in found if isinstance(one, StoredTensor)]


def _joined(
    groups: Sequence[Mapping[str, tuple[int, ...]]], ranks: Sequence[Sequence[StoredTensor]], stage: int
) -> Iterator[tuple[str, StoredTensor]]:
    if stage == 3:
        at = 0
        for name, shape in (item for group in groups for item in group.items()):
            part = -(-prod(shape) // len(ranks))
            blocks = [
                block
                for rank, of_rank in enumerate(ranks)
                for block in _runs(of_rank, at, min(part, prod(shape) - rank * part), rank * part)
            ]
            at += part
            yield name, _flat(of_ranks_dtype(ranks), shape, blocks)
        return
    for number, group in enumerate(groups):
        end_to_end = [of_rank[number] for of_rank in ranks if number < len(of_rank)]
        at = 0
        for name, shape in group.items():
            yield name, _flat(of_ranks_dtype(ranks), shape, list(_runs(end_to_end, at, prod(shape), 0)))
            at += prod(shape)
        spare = sum(prod(one.shape) for one in end_to_end) - at
        if not 0 <= spare <= 2 * len(ranks) * max(1, len(ranks)):
            raise DamagedCheckpoint(f"group {number} holds {spare:+,} elements besides its weights")


def of_ranks_dtype(ranks: Sequence[Sequence[StoredTensor]]) -> str:
    dtypes = {one.dtype for of_rank in ranks for one in of_rank}
    if len(dtypes) != 1:
        raise DamagedCheckpoint(f"ranks hold {', '.join(sorted(dtypes)) or 'nothing'} of one kind of state")
    return dtypes.pop()


def _flat(dtype: str, shape: tuple[int, ...], blocks: list[StoredBlock]) -> StoredTensor:
    return StoredTensor(dtype=dtype, shape=shape, blocks=tuple(blocks), flat=True)


def _runs(tensors: Sequence[StoredTensor], first: int, count: int, target: int) -> Iterator[StoredBlock]:
    """Elements [first, first + count) of tensors end to end, as blocks from `target` on."""
    start = 0
    for tensor in tensors:
        size = prod(tensor.shape)
        low, high = max(first, start), min(first + count, start + size)
        if low < high:
            place = partial(_inside, tensor, low - start)
            yield StoredBlock((target + low - first,), (high - low,), place)
        start += size


def _inside(tensor: StoredTensor, at: int) -> StoragePlace:
    whole = tensor.blocks[0].place()
    return StoragePlace(whole.file, whole.at + at * ITEM[tensor.dtype], sealed=whole.sealed)
