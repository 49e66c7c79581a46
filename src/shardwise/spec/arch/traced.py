"""A model that `auto --model-out` has written: told by what a user's own module ran, field by field as Model has it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shardwise.spec.model import Model

TRACED = "traced"
"""its family, and the model_type of its file"""
MOST = 10**9
"""the largest whole number that a size may be"""


def traced_config(model: Model) -> dict[str, Any]:
    """What is written of it."""
    return {"model_type": TRACED, "model": msgspec.to_builtins(model)}


def read_traced(config: Mapping[str, Any], name: str) -> Model:
    try:
        model = msgspec.convert(config.get("model"), Model)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise ValueError(f"model {name}: model: {error}; write it again with `auto --model-out`") from None
    _check(msgspec.to_builtins(model), name, "model")
    return msgspec.structs.replace(model, name=name, family=TRACED)


def _check(value: Any, name: str, where: str) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            _check(part, name, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for part in value:
            _check(part, name, where)
    elif isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= MOST:
        raise ValueError(f"model {name}: {where} {value} is out of range; write it again with `auto --model-out`")
