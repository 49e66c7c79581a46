"""Models of several parts: towers that see an image or hear a sound, and the language model they speak to.

A tower's layers stand before the language model's, with their own width and positions: those of one image, or of the
longest sound its file states, for each sequence. What leads from one to the other is part of the tower's last layer.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.arch.by_fields.decoder import layers_of
from shardwise.spec.arch.by_fields.form import Form, forms
from shardwise.spec.arch.by_fields.sizes import SEEN, TILE, size
from shardwise.spec.model import Layer, Matrix, Model

TEXT = ("text_config", "llm_config", "language_config")
TOWERS = {"vision_config": "image", "audio_config": "sound"}
SIDE = 448
"""pixels of an image whose tower takes any size: the side of a tile of InternVL and Llama 4"""


def has_towers(config: Mapping[str, Any]) -> bool:
    return any(isinstance(config.get(name), Mapping) for name in TOWERS)


def has_text_part(config: Mapping[str, Any]) -> bool:
    return any(isinstance(config.get(name), Mapping) for name in TEXT)


def read_text_part(config: Mapping[str, Any], name: str, read_text: Callable[[Mapping[str, Any], str], Model]) -> Model:
    """Of a file that has a language model's section and no tower."""
    fields = ConfigFields.of(config, name)
    _only_known_parts(config, fields)
    text = read_text(_text_part(config, Form(fields, fields.text("model_type", default=""))), name)
    return replace(text, notes=(*text.notes, "read: the part for text alone; the file states no other sizes"))


def read_with_towers(
    config: Mapping[str, Any], name: str, read_text: Callable[[Mapping[str, Any], str], Model]
) -> Model:
    config = {key: _plain_names(value) if key in TOWERS else value for key, value in config.items()}
    whole = ConfigFields.of(config, name)
    form = Form(whole, whole.text("model_type", default=""))
    _only_known_parts(config, whole)
    notes: list[str] = []
    layers: list[Layer] = []
    for section, sense in TOWERS.items():
        if isinstance(config.get(section), Mapping):
            layers += _tower(whole.section(section), config[section], name, sense, notes)
    text = read_text(_text_part(config, form) | {SEEN: layers[-1].tokens}, name)
    layers[-1] = replace(layers[-1], further=layers[-1].further + _projector(form, layers[-1].width, text, notes))
    kinds = list(dict.fromkeys(layers))
    shift = len(kinds)
    return replace(
        text,
        family=form.model_type or text.family,
        kinds=(*kinds, *text.kinds),
        pattern=(*(kinds.index(layer) for layer in layers), *(kind + shift for kind in text.pattern)),
        mtp_pattern=tuple(kind + shift for kind in text.mtp_pattern),
        notes=(*text.notes, *notes),
    )


def _plain_names(section: Any) -> Any:
    """Kimi's files put vt_ or init_ before the names of a tower's sizes."""
    if not isinstance(section, Mapping):
        return section
    return {**{re.sub(r"^(?:vt|init)_", "", key): value for key, value in section.items()}, **section}


def _text_part(config: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """The language model's section, or what is left where it has none."""
    section = next((config[name] for name in TEXT if isinstance(config.get(name), Mapping)), None)
    if section is None:
        return {k: v for k, v in config.items() if k not in TOWERS} | {"model_type": form.text("text_type")}
    # the whole decides about its head
    return {**section, **{k: config[k] for k in ("tie_word_embeddings",) if config.get(k) is not None}}


def _only_known_parts(config: Mapping[str, Any], fields: ConfigFields) -> None:
    """A part that nobody reads must not be lost in silence."""
    for key, value in config.items():
        known = key in TEXT or key in TOWERS or not key.endswith("_config")
        if not known and isinstance(value, Mapping) and value.get("model_type"):
            raise ValueError(
                f"{fields.at(key)} is a part that is not read; write a model of {', '.join(TOWERS)} and text_config"
            )


def _tower(fields: ConfigFields, config: Mapping[str, Any], name: str, sense: str, notes: list[str]) -> list[Layer]:
    kind = fields.text("model_type", default="")
    usual = "any vision tower" if sense == "image" else "any sound tower"
    # a file may call the tower as the whole
    names = (f"{kind}_vision", f"{kind}_encoder", kind)
    known = next((each for each in names if each in forms() and "projector" not in forms()[each]), usual)
    form = Form(fields, known)
    if form.text("hidden"):
        config = {**config, "hidden_size": fields.whole(form.text("hidden"))}
        fields = ConfigFields.of(config, name)
        form = form.at(fields)
    if more := form.size("more_layers"):
        config = {**config, "num_hidden_layers": size(fields, "layers") + more}
    if known == usual:
        notes.append(f"no file describes the tower {kind or 'that hears or sees'}: taken as a plain transformer")
    positions, first = _image(fields, form, notes) if sense == "image" else _sound(fields, form)
    tiles = form.size("tiles") or 1
    config = {**config, TILE: positions}
    form = form.at(ConfigFields.of(config, name))
    made, positions = layers_of(config, name, form), positions * tiles
    width = size(fields, "hidden")
    layers = [replace(layer, width=width, tokens=positions) for layer in made]
    layers[0] = replace(layers[0], further=layers[0].further + first)
    layers[-1] = replace(layers[-1], further=layers[-1].further + form.matrices("last"))
    notes.append(
        f"{sense} tower: {len(layers)} layers of width {width:,} see {positions:,} positions, one {sense} a sequence"
    )
    notes += dict.fromkeys(form.notes)
    return layers


def _image(fields: ConfigFields, form: Form, notes: list[str]) -> tuple[int, tuple[Matrix, ...]]:
    """Positions of an image, and the tables and product that make them."""
    width, patch = size(fields, "hidden"), _side(fields, "patch_size")
    channels = fields.whole("num_channels", "in_channels", "in_chans", default=3)
    volume = channels * patch * patch * fields.whole("temporal_patch_size", default=1)
    if not any(fields.has(each) for each in ("image_size", "num_patches")):
        notes.append(f"no size of an image is stated: {SIDE} x {SIDE} pixels assumed")
    patches = fields.whole("num_patches", default=0) or math.ceil(_side(fields, "image_size", SIDE) / patch) ** 2
    positions = patches + form.whole("class_tokens", 0)
    rows = form.size("position_rows") or (positions if form.flag("learned_positions") else 0)
    table = (Matrix(name="vision.position_embedding", outputs=rows, inputs=width, product=False),) if rows else ()
    return positions, (Matrix(name="vision.patch_embedding", outputs=width, inputs=volume), *table)


def _sound(fields: ConfigFields, form: Form) -> tuple[int, tuple[Matrix, ...]]:
    positions = fields.whole("max_source_positions", "max_position_embeddings", default=0)
    if not positions:
        raise ValueError(f"{fields.at('max_source_positions')} is missing; write how many positions a sound has")
    table = Matrix(name="audio.embed_positions", outputs=positions, inputs=size(fields, "hidden"), product=False)
    return positions, (table,) if form.flag("learned_positions") else ()


def _side(fields: ConfigFields, name: str, default: int | None = None) -> int:
    """A side in pixels, of a square or the first of [height, width]."""
    value = fields.value(name, "a whole number of pixels") if fields.has(name) else default
    if isinstance(value, list):
        sides = fields.wholes(name)
        if not sides:
            raise fields.refuse(name, "a whole number of pixels, or [height, width]")
        return sides[0]
    return fields.whole(name, default=default)


def _projector(form: Form, width: int, text: Model, notes: list[str]) -> tuple[Matrix, ...]:
    found = form.matrices("projector")
    if found or form.known:
        return found
    notes.append(
        f"no file describes how the parts of {form.model_type or 'it'} join: two GEMMs assumed, "
        f"from {width:,} to {text.hidden:,} channels"
    )
    return (
        Matrix(name="projector.linear_1", outputs=text.hidden, inputs=width),
        Matrix(name="projector.linear_2", outputs=text.hidden, inputs=text.hidden),
    )
