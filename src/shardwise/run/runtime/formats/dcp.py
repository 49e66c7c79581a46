"""torch's Distributed Checkpoint, which FSDP2, torchtitan and Megatron (`torch_dist`, `fsdp_dtensor`) write.

`.metadata` is a pickle of places, each block a file of `torch.save` inside a larger file.
"""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shardwise.programs.importers.plain_pickle import MadeObject, Name, load
from shardwise.run.runtime.checkpoints.manifest import MOST_LONG, DamagedCheckpoint, ordinary_size
from shardwise.run.runtime.formats.names import classified
from shardwise.run.runtime.formats.stored import (
    STEP,
    StoragePlace,
    StoredBlock,
    StoredCheckpoint,
    StoredTensor,
    known_dtype,
)
from shardwise.run.runtime.formats.torch_zip import plain, read_saved

METADATA, COMMON, BACKEND = ".metadata", "common.pt", "metadata.json"
MOST_METADATA = 1 << 30
_STEPS = ("step", "iteration", "train_state.step", "global_step", "app.step")


def is_dcp(path: Path) -> bool:
    return (path / METADATA).is_file()


def read_dcp(path: Path) -> StoredCheckpoint:
    tree = _metadata(path / METADATA)
    tensors, values = dict[str, StoredTensor](), dict[str, Any]()
    places = _places(tree.get("storage_data"), path)
    kinds = classified(name for name, one in _items(tree, "state_dict_metadata") if _is(one, "TensorStorageMetadata"))
    for name, one in _items(tree, "state_dict_metadata"):
        if _is(one, "TensorStorageMetadata"):
            kind, parameter = kinds[name]
            dtype = _dtype(one, name)
            blocks = tuple(_block(chunk, name, dtype, places) for chunk in _chunks(one, name))
            tensors[name] = StoredTensor(
                dtype=dtype, shape=_sizes(_state(one, name).get("size"), name), blocks=blocks, kind=kind,
                parameter=parameter,
            )  # fmt: skip
        else:
            values[name] = partial(_value, places, name)
    found = StoredCheckpoint(path=path, format=_format(path, tensors), tensors=tensors)
    found.values = {name: read() for name, read in values.items()}
    _beside(path, found)
    found.step = _step(found)
    return found


def _metadata(path: Path) -> dict[str, Any]:
    if ordinary_size(path) > MOST_METADATA:
        raise DamagedCheckpoint(f"{METADATA} is larger than {MOST_METADATA:,} bytes")
    try:
        tree = load(path.read_bytes(), objects=True)
    except ValueError as error:
        raise DamagedCheckpoint(f"{METADATA} cannot be read ({error})") from None
    except OSError as error:
        raise DamagedCheckpoint(f"{METADATA} cannot be read ({error.strerror})") from None
    if not _is(tree, "Metadata") or not isinstance(tree.state, dict):
        raise DamagedCheckpoint(f"{METADATA} is not of torch's Distributed Checkpoint")
    state: dict[str, Any] = tree.state
    return state


def _is(node: Any, name: str) -> bool:
    return isinstance(node, MadeObject) and node.name.split()[-1] == name


def _items(tree: dict[str, Any], field: str) -> list[tuple[str, Any]]:
    found = tree.get(field)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise DamagedCheckpoint(f"{METADATA} has no {field}")
    return list(found.items())


def _state(node: Any, name: str) -> dict[str, Any]:
    if not isinstance(node, MadeObject) or not isinstance(node.state, dict):
        raise DamagedCheckpoint(f"{METADATA} lists {name[:80]} in a form that is not read")
    return node.state


def _sizes(node: Any, name: str) -> tuple[int, ...]:
    if not isinstance(node, tuple | list) or not all(type(n) is int and 0 <= n < MOST_LONG for n in node):
        raise DamagedCheckpoint(f"{METADATA} lists {name[:80]} with a shape that is not one")
    return tuple(node)


def _chunks(node: Any, name: str) -> list[Any]:
    found = _state(node, name).get("chunks")
    if not isinstance(found, list):
        raise DamagedCheckpoint(f"{METADATA} lists no blocks of {name[:80]}")
    return found


def _dtype(node: MadeObject, name: str) -> str:
    state = getattr(_state(node, name).get("properties"), "state", None)
    first = state.get("dtype") if isinstance(state, dict) else next(iter(state or ()), None)
    return known_dtype(first.split()[-1] if isinstance(first, Name) else str(first), name)


def _places(node: Any, folder: Path) -> dict[tuple[str, tuple[int, ...] | None], tuple[Path, int, int]]:
    if not isinstance(node, dict):
        raise DamagedCheckpoint(f"{METADATA} says nothing of files")
    found: dict[tuple[str, tuple[int, ...] | None], tuple[Path, int, int]] = {}
    for index, info in node.items():
        where, which = _state(info, "a file"), _state(index, "a block")
        file, name, offset = where.get("relative_path"), which.get("fqn"), which.get("offset")
        if not isinstance(name, str) or not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            raise DamagedCheckpoint(f"{METADATA} names a file that is not in its folder: {str(file)[:80]!r}")
        if where.get("transform_descriptors"):
            raise DamagedCheckpoint(f"{file} is stored compressed or transformed, which is not read")
        ends = where.get("offset"), where.get("length")
        if not all(type(n) is int and 0 <= n < MOST_LONG for n in ends):
            raise DamagedCheckpoint(f"{METADATA} lists {name[:80]} outside its file")
        key = (name, None if offset is None else _sizes(offset, name))
        if key in found:
            raise DamagedCheckpoint(f"{METADATA} has two places for one block of {name[:80]}")
        found[key] = (folder / file, ends[0], ends[1])  # type: ignore[assignment]
    return found


def _block(node: Any, name: str, dtype: str, places: dict[Any, tuple[Path, int, int]]) -> StoredBlock:
    state = _state(node, name)
    offsets, sizes = _sizes(state.get("offsets"), name), _sizes(state.get("sizes"), name)
    there = places.get((name, offsets))
    if there is None:
        raise DamagedCheckpoint(f"{METADATA} has no place for a block of {name[:80]}")
    return StoredBlock(offsets, sizes, partial(_place, there, sizes, dtype, name))


def _place(there: tuple[Path, int, int], sizes: tuple[int, ...], dtype: str, name: str) -> StoragePlace:
    tensor = read_saved(*there).tree
    if not isinstance(tensor, StoredTensor) or (tensor.shape, tensor.dtype) != (sizes, dtype):
        stated = f"{name[:80]} {dtype} {list(sizes)}"
        raise DamagedCheckpoint(f"{there[0].name} has another block than {METADATA} says: {stated}")
    return tensor.blocks[0].place()


def _value(places: dict[Any, tuple[Path, int, int]], name: str) -> Any:
    if (name, None) not in places:
        raise DamagedCheckpoint(f"{METADATA} has no place for {name[:80]}")
    return plain(read_saved(*places[name, None]).tree)


def _format(path: Path, tensors: dict[str, StoredTensor]) -> str:
    if (path / BACKEND).is_file():
        try:
            backend = msgspec.json.decode((path / BACKEND).read_bytes()[:4096], type=dict[str, Any])
        except (ValueError, RecursionError, OSError):
            backend = {}
        if backend.get("sharded_backend") == "torch_dist":
            return "megatron torch_dist"
    if any(".module." in name or name.startswith("module.") for name in tensors) and (path / COMMON).exists():
        return "megatron fsdp_dtensor"
    if any(name.startswith(("train_state.", "dataloader.")) for name in tensors):
        return "torchtitan"
    return "torch dcp"


def _beside(path: Path, found: StoredCheckpoint) -> None:
    """Megatron's values that every rank has alike."""
    if (path / COMMON).is_file():
        tree = read_saved(path / COMMON).tree
        if isinstance(tree, dict):
            found.values |= {str(name): plain(value) for name, value in tree.items()}


def _step(found: StoredCheckpoint) -> int | None:
    for name in _STEPS:
        if isinstance(found.values.get(name), int):
            return int(found.values[name])
        if name in found.tensors and not found.tensors[name].shape:
            return int(plain(found.tensors[name]))
    read = {int(plain(one)) for one in found.tensors.values() if one.kind == STEP and not one.shape}
    return read.pop() if len(read) == 1 else None
