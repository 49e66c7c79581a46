"""ViT, and DeiT with its second learned token: patches of a picture, both directions, one class a sample."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_EMBEDDINGS = "vit.embeddings"
_BLOCK = "vit.layers.{i}."
_LEARNED = {"vit": 1, "deit": 2}
"""tokens before the patches: for the class, and DeiT's for what a teacher says"""
_USUAL_CLASSES = 2
"""outputs that transformers gives a file which names none"""
_MOST_SIDE = 10**5


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    layer = Layer(
        attention=attention(fields, bias_qkv=fields.flag("qkv_bias", True), bias_out=True, causal=False),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=False, bias=True),
    )
    learned = _LEARNED[fields.text("model_type", default="vit")]
    high, wide = _sides(fields, "image_size", 224)
    patch_high, patch_wide = _sides(fields, "patch_size", 16)
    if patch_high > high or patch_wide > wide:
        raise fields.refuse("patch_size", f"at most the image's {high} x {wide} pixels")
    tokens = (high // patch_high) * (wide // patch_wide) + learned
    classes, notes = _classes(fields)
    return assemble(
        fields,
        name,
        "vit",
        [layer] * fields.layers(),
        vocab=classes,
        tied=False,
        norm="layer",
        norm_bias=True,
        positions=tokens,
        rotary=False,
        dropout=fields.number("hidden_dropout_prob", 0.0) > 0,
        head_bias=True,
        inputs="patches",
        input_width=fields.whole("num_channels", default=3, most=10**4) * patch_high * patch_wide,
        input_bias=True,
        class_tokens=learned,
        sample_tokens=tokens,
        head_once=True,
        notes=notes,
    )


def _sides(fields: ConfigFields, name: str, default: int) -> tuple[int, int]:
    """Height and width in pixels: one number for a square, or both."""
    if fields.has(name) and isinstance(fields.value(name, "pixels"), list):
        sides = fields.wholes(name, least=1, most=_MOST_SIDE)
        if len(sides) != 2:
            raise fields.refuse(name, "a whole number of pixels, or [height, width]")
        return sides[0], sides[1]
    side = fields.whole(name, default=default, most=_MOST_SIDE)
    return side, side


def _classes(fields: ConfigFields) -> tuple[int, tuple[str, ...]]:
    if fields.has("num_labels"):
        return fields.whole("num_labels"), ()
    labels = fields.value("id2label", "a name for each class") if fields.has("id2label") else None
    if isinstance(labels, Mapping) and labels:
        return len(labels), ()
    return _USUAL_CLASSES, (f"its file names no classes: {_USUAL_CLASSES} assumed, as transformers does (num_labels)",)


FAMILY = Family(
    name="vit",
    model_types=("vit", "deit"),
    read=read,
    names={
        "input": _EMBEDDINGS + ".patch_embeddings.projection",
        "patch_tables": _EMBEDDINGS,
        "q": _BLOCK + "attention.q_proj",
        "k": _BLOCK + "attention.k_proj",
        "v": _BLOCK + "attention.v_proj",
        "o": _BLOCK + "attention.o_proj",
        "norm.0": _BLOCK + "layernorm_before",
        "norm.1": _BLOCK + "layernorm_after",
        "up": _BLOCK + "mlp.fc1",
        "down": _BLOCK + "mlp.fc2",
        "final_norm": "vit.layernorm",
        "head": "classifier",
    },
)
