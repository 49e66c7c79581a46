"""Reads families that nobody wrote a file for, by the names of their fields.

Sizes have the same few names everywhere (`sizes`). What a configuration does not say - biases, norms, a gate - stands
by `model_type` in `forms.toml`; for a type that is not there it is guessed from the fields, and every guess is a note.
"""

from collections.abc import Mapping
from typing import Any

from shardwise.spec.arch.by_fields.decoder import read_stack
from shardwise.spec.arch.by_fields.encoder_decoder import has_two_stacks, read_two_stacks
from shardwise.spec.arch.by_fields.form import FORM, not_read
from shardwise.spec.arch.by_fields.sizes import size
from shardwise.spec.arch.by_fields.towers import TEXT, has_text_part, has_towers, read_text_part, read_with_towers
from shardwise.spec.model import Model

__all__ = [
    "FORM",
    "TEXT",
    "check_is_read",
    "has_text_part",
    "has_towers",
    "read_by_fields",
    "read_text_part",
    "read_with_towers",
    "size",
]


def read_by_fields(config: Mapping[str, Any], name: str) -> Model:
    return read_two_stacks(config, name) if has_two_stacks(config) else read_stack(config, name)


def check_is_read(config: Mapping[str, Any], name: str) -> None:
    """A family whose sizes could be read and would be wrong is an error that says why."""
    model_type = config.get("model_type")
    why = not_read().get(model_type, "") if isinstance(model_type, str) else ""
    if why:
        raise ValueError(
            f"model {name}: model_type is {model_type!r}, which is not read: {why}; write a script of it and use "
            "'shardwise trace'"
        )
    pictures = config.get("image_size") and config.get("patch_size")
    if pictures and not has_text_part(config) and not has_towers(config):
        raise ValueError(
            f"model {name}: model_type is {model_type!r}, which reads images; of these vit and deit are read: write "
            "a script of it and use 'shardwise auto' or 'shardwise trace'"
        )
