"""Model architectures: a catalog name or a config.json becomes a Model."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from shardwise import catalog
from shardwise.arch._family import Family, families
from shardwise.arch._fields import ConfigFields
from shardwise.arch._file import looks_like_path, read_config
from shardwise.arch._shape import model_from_shape
from shardwise.arch.by_fields import (
    TEXT,
    check_is_read,
    has_text_part,
    has_towers,
    read_by_fields,
    read_text_part,
    read_with_towers,
    size,
)
from shardwise.spec.model import Model

__all__ = ["Family", "families", "model_from_config", "model_from_shape", "model_names", "model_of"]


def model_names() -> list[str]:
    return catalog.names("models")


def model_of(name_or_path: str) -> Model:
    """A catalog name or alias, a config.json, or a folder that holds one."""
    try:
        name = catalog.resolve("models", name_or_path)
    except ValueError:
        if looks_like_path(name_or_path):
            return model_from_config(*read_config(name_or_path))
        raise
    return _from_catalog(name)


@cache
def _from_catalog(name: str) -> Model:
    return model_from_config(catalog.entry("models", name), name)


def model_from_config(config: Mapping[str, object], name: str) -> Model:
    """A Model from Hugging Face configuration fields. Code that they name (`auto_map`) is never run."""
    fields = ConfigFields.of(config, name)
    try:
        model = _read(config, name)
    except ValueError as error:
        # the parts of a model check themselves but do not know whose parts they are
        text = str(error)
        raise ValueError(text if text.startswith(f"model {name}: ") else f"model {name}: {text}") from error
    return msgspec.structs.replace(
        model,
        context=_context(fields) or model.positions,
        published_params=fields.number("_shardwise_params", 0.0),
        source=fields.text("_shardwise_source", default=""),
    )


def _read(config: Mapping[str, Any], name: str) -> Model:
    check_is_read(config, name)
    if has_towers(config):
        return read_with_towers(config, name, _read)
    model_type = ConfigFields.of(config, name).text("model_type", default="")
    by_type = {known: family for family in families().values() for known in family.model_types}
    if model_type in by_type:
        return by_type[model_type].read(config, name)
    return read_text_part(config, name, _read) if has_text_part(config) else read_by_fields(config, name)


def _context(fields: ConfigFields) -> int:
    """The longest sequence under the names files give it; models of several parts have it in their text part."""
    part = next((fields.section(name) for name in TEXT if fields.has(name)), fields)
    return size(part, "positions", 0)
