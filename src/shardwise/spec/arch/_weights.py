"""The weights beside a config.json, by their names: how many parameters they have, and the form they give away.

Only the list of weights is read (model.safetensors.index.json), or the head of a single file; never a weight.
"""

import json
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shardwise.spec.arch.tensors import parameters
from shardwise.spec.model import Model

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
MOST_BYTES = 32 * 2**20
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
MOST_AXES = 16
EXACT = 1e-3
"""what tensors of a few numbers may make up"""
_FIRST = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.0\.(.+)$")
_QUERY = re.compile(r"(?:q_proj|query|qkv|wqkv|c_attn|wq|query_key_value)[^.]*$")
_OUT = re.compile(r"(?:o_proj|out_proj|dense|wo|c_proj|attn\.proj)$")


class Weights(Struct, frozen=True, kw_only=True):
    names: tuple[str, ...]
    parameters: int = 0
    """0: not told"""
    where: str = INDEX


def weights_in(folder: Path, config: Mapping[str, Any]) -> Weights | None:
    """None where there is no list, or none that can be read."""
    listed = _json(folder / INDEX, 0)
    if listed is not None and isinstance(listed.get("weight_map"), dict):
        stated = listed.get("metadata")
        told = stated if isinstance(stated, dict) else {}
        return Weights(names=tuple(map(str, listed["weight_map"])), parameters=_told(told, config))
    head = _head(folder / SINGLE)
    if head is None:
        return None
    shapes = {name: each.get("shape") for name, each in head.items() if isinstance(each, dict) and name[:2] != "__"}
    sizes = [_size(shape) for shape in shapes.values()]
    quantized = "quantization_config" in config
    return Weights(names=tuple(shapes), parameters=0 if quantized else sum(sizes), where=SINGLE)


def compared(model: Model, weights: Weights | None) -> Model:
    """The model with a note on how its parameters compare with those that are stored."""
    if weights is None or not weights.parameters:
        return model
    counts = (parameters(model), parameters(model, mtp=True))
    counted = min(counts, key=lambda count: abs(count - weights.parameters))
    off = counted / weights.parameters - 1
    said = f"{weights.where}: {weights.parameters:,} parameters, {counted:,} counted ({off:+.2%})"
    if abs(off) > EXACT:
        said += "; the count may miss or add parameters, so trust figures accordingly"
    return replace(model, notes=(*model.notes, said), published_params=float(weights.parameters))


def form_of_names(names: tuple[str, ...]) -> dict[str, str | bool | int]:
    """The facts of by_fields/forms.toml that the names of the first layer's weights tell."""
    here = [match[1] for name in names if (match := _FIRST.search(name))]
    bare = [name.removesuffix(".weight").removesuffix(".bias") for name in here]
    if not here:
        return {}
    biased = {name.removesuffix(".bias") for name in here if name.endswith(".bias")}
    norms = {name for name in bare if re.search(r"(?:norm|ln)\w*$", name, re.IGNORECASE)}
    of_heads = {name for name in norms if re.search(r"(?:q|k|query|key)_?(?:layer)?_?norm$", name)}
    feed = [name for name in bare if re.search(r"mlp|ffn|feed_forward|moe|fc[12]$", name)]
    facts: dict[str, str | bool | int] = {}
    if any(_QUERY.search(name) for name in bare):
        facts["qkv_bias"] = any(_QUERY.search(name) for name in biased)
        facts["out_bias"] = any(_OUT.search(name) and "att" in name for name in biased)
    if feed:
        facts["mlp_bias"] = any(name in biased and not re.search(r"gate$|router|experts?$", name) for name in feed)
        facts["glu"] = any(re.search(r"gate_proj|gate_up|w3$|up_gate|input_linear", name) for name in feed)
    if norms:
        facts["qk_norm"] = "head" if of_heads else "none"
        facts["norm"] = "layer" if norms & biased else "rms"
    return facts


def _told(metadata: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Parameters as the list states them, or from its bytes where every weight has one dtype."""
    stated, size = metadata.get("total_parameters"), metadata.get("total_size")
    if isinstance(stated, int) and stated > 0:
        return stated
    dtype = config.get("torch_dtype") or config.get("dtype")
    each = BYTES.get(dtype, 0) if isinstance(dtype, str) else 0
    plain = each and isinstance(size, int | float) and "quantization_config" not in config
    return round(size / each) if plain and size is not None else 0


def _size(shape: object) -> int:
    if not isinstance(shape, list) or len(shape) > MOST_AXES:
        return 0
    return prod(side if isinstance(side, int) and 0 <= side < 2**48 else 0 for side in shape)


def _head(path: Path) -> dict[str, Any] | None:
    """The names and shapes in front of a safetensors file: its first 8 bytes say how long they are."""
    try:
        if not path.is_file():  # a pipe may have nobody who writes
            return None
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
    except OSError:
        return None
    return _json(path, 8, length) if 2 <= length <= MOST_BYTES else None


def _json(path: Path, start: int, length: int = MOST_BYTES) -> dict[str, Any] | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            file.seek(start)
            raw = file.read(length)
        found = json.loads(raw)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
