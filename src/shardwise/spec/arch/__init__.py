"""Model architectures: a catalog name or a config.json becomes a Model."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from shardwise import catalog
from shardwise.fields import offered_file
from shardwise.spec.arch._family import Family, families, family_of_type
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.arch._file import folder_with, looks_like_path, parsed_config, read_config
from shardwise.spec.arch._hub import catalog_name, folder_of, is_hub_id
from shardwise.spec.arch._shape import model_from_shape
from shardwise.spec.arch._weights import compared, form_of_names, weights_in
from shardwise.spec.arch.by_fields import (
    FORM,
    TEXT,
    check_is_read,
    has_text_part,
    has_towers,
    read_by_fields,
    read_text_part,
    read_with_towers,
    size,
)
from shardwise.spec.arch.traced import TRACED, read_traced
from shardwise.spec.model import Model, PublishedTraining

__all__ = [
    "Family", "catalog_name", "config_of", "families", "model_from_config", "model_from_shape", "model_names",
    "model_of",
]  # fmt: skip


def model_names() -> list[str]:
    return catalog.names("models")


def model_of(name_or_path: str | Mapping[str, object]) -> Model:
    """A catalog name or alias, a config.json or its fields, a folder that holds one, or an id of Hugging Face's hub."""
    if not isinstance(name_or_path, str):
        name = name_or_path.get("_name_or_path") or name_or_path.get("model_type") or "model"
        return model_from_config(name_or_path, str(name)[:100])
    raw = offered_file(name_or_path)
    if raw is not None:
        return model_from_config(parsed_config(raw, name_or_path), name_or_path.removesuffix(".json"))
    try:
        name = catalog.resolve("models", name_or_path)
    except ValueError:
        if is_hub_id(name_or_path):
            return _from_hub(name_or_path)
        if looks_like_path(name_or_path):
            return _from_file(name_or_path)
        raise
    return _from_catalog(name)


def config_of(name_or_path: str) -> tuple[dict[str, Any], str]:
    """(fields, a name) of the configuration behind what `model_of` takes."""
    raw = offered_file(name_or_path)
    if raw is not None:
        return parsed_config(raw, name_or_path), name_or_path.removesuffix(".json")
    try:
        name = catalog.resolve("models", name_or_path)
    except ValueError:
        hub = is_hub_id(name_or_path)
        if not hub and not looks_like_path(name_or_path):
            raise
        name = catalog_name(name_or_path) if hub else ""
        if not name:
            return read_config(str(folder_of(name_or_path)) if hub else name_or_path)
    return catalog.entry("models", name), name


def _from_hub(hub_id: str) -> Model:
    name = catalog_name(hub_id)
    if name:
        return _from_catalog(name)
    model = _from_file(str(folder_of(hub_id)))
    return msgspec.structs.replace(
        model, name=hub_id.partition("/")[2], source=model.source or f"Hugging Face {hub_id}, config.json"
    )


def _from_file(path: str) -> Model:
    """With what the weights beside it tell."""
    config, name = read_config(path)
    weights = weights_in(folder_with(path), config)
    facts = form_of_names(weights.names) if weights is not None else {}
    return compared(model_from_config({FORM: facts, **config} if facts else config, name), weights)


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
        published_training=_training(fields),
        source=fields.text("_shardwise_source", default=""),
    )


def _training(fields: ConfigFields) -> PublishedTraining | None:
    batch, rate, tokens = (
        fields.number(f"_shardwise_{name}", 0.0) for name in ("batch_tokens", "learning_rate", "tokens")
    )
    return PublishedTraining(batch_tokens=batch, learning_rate=rate, tokens=tokens) if batch else None


def _read(config: Mapping[str, Any], name: str) -> Model:
    towers = has_towers(config)
    model_type = "" if towers else ConfigFields.of(config, name).text("model_type", default="")
    if model_type == TRACED:
        return read_traced(config, name)
    family = family_of_type(model_type) if model_type else None
    if family is not None:
        return family.read(config, name)
    check_is_read(config, name)
    if towers:
        return read_with_towers(config, name, _read)
    return read_text_part(config, name, _read) if has_text_part(config) else read_by_fields(config, name)


def _context(fields: ConfigFields) -> int:
    """The longest sequence under the names files give it; models of several parts have it in their text part."""
    part = next((fields.section(name) for name in TEXT if fields.has(name)), fields)
    return size(part, "positions", 0)
