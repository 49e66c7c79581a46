"""safetensors: one file, or a folder as Hugging Face writes it, with an index where there are several files."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.names import classified
from shardwise.run.runtime.formats.stored import ITEM, StoragePlace, StoredBlock, StoredCheckpoint, StoredTensor
from shardwise.run.runtime.weights.safe_header import SafeHeader

INDEX, CONFIG = "model.safetensors.index.json", "config.json"
MOST_INDEX = 64 * 2**20
TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def is_hugging_face(path: Path) -> bool:
    return path.suffix == ".safetensors" or (path.is_dir() and any(path.glob("*.safetensors")))


def read_hugging_face(path: Path) -> StoredCheckpoint:
    folder = path if path.is_dir() else path.parent
    listed = _index(path / INDEX) if (path / INDEX).is_file() else None
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    if listed is not None:
        files = [folder / name for name in sorted(set(listed.values()))]
    tensors, metadata = dict[str, StoredTensor](), dict[str, Any]()
    for file in files:
        try:
            header = SafeHeader(file, {name: ITEM[dtype] for name, dtype in TYPES.items()}, "checkpoint")
        except ValueError as error:
            raise DamagedCheckpoint(str(error).removeprefix("checkpoint: ")) from None
        metadata |= header.metadata
        for name, entry in header.entries.items():
            if listed is not None and listed.get(name) != file.name:
                raise DamagedCheckpoint(f"{file.name} holds {name[:80]}, which {INDEX} lists elsewhere")
            if name in tensors:
                raise DamagedCheckpoint(f"{name[:80]} is there 2 times, the second in {file.name}")
            place = partial(StoragePlace, file, header.start + entry.data_offsets[0])
            block = StoredBlock((0,) * len(entry.shape), entry.shape, place)
            tensors[name] = StoredTensor(dtype=TYPES[entry.dtype], shape=entry.shape, blocks=(block,))
    if lost := sorted(set(listed or ()) - set(tensors)):
        raise DamagedCheckpoint(f"{INDEX} lists {lost[0][:80]}, which no file holds")
    tensors = {
        name: msgspec.structs.replace(tensors[name], kind=kind, parameter=parameter)
        for name, (kind, parameter) in classified(tensors).items()
    }
    named = "hugging face" if (folder / CONFIG).is_file() else "safetensors"
    found = StoredCheckpoint(path=path, format=named, tensors=tensors)
    if metadata:
        found.values["metadata"] = metadata
    return found


def _index(path: Path) -> dict[str, str]:
    try:
        if path.stat().st_size > MOST_INDEX:
            raise DamagedCheckpoint(f"{INDEX} is larger than {MOST_INDEX:,} bytes")
        listed = msgspec.json.decode(path.read_bytes(), type=dict[str, Any]).get("weight_map")
        found = msgspec.convert(listed, dict[str, str])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{INDEX} is not an index ({error})") from None
    outside = [name for name in found.values() if Path(name).name != name or name in ("", ".", "..")]
    if outside:
        raise DamagedCheckpoint(f"{INDEX} names {outside[0][:80]!r}, which is not in its folder")
    return found
