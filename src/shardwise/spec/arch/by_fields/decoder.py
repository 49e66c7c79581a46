"""A stack of layers from the fields of a configuration: a decoder, or an encoder of text."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from shardwise.spec.arch._family import assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.arch.by_fields.experts import experts_of, sparse_layers
from shardwise.spec.arch.by_fields.form import Form
from shardwise.spec.arch.by_fields.mixers import (
    BOTH,
    LINEAR,
    NEAR,
    attention_of,
    beside_attention,
    joined,
    scan_of,
    words_of,
)
from shardwise.spec.arch.by_fields.sizes import CROSSES, SEEN, at_layer, given, size
from shardwise.spec.model import FeedForward, Layer, Model

DROPOUTS = ("dropout", "hidden_dropout_prob", "resid_pdrop", "dropout_rate", "hidden_dropout")


def read_stack(config: Mapping[str, Any], name: str) -> Model:
    """A model that is one stack of layers between an embedding and a head."""
    fields = ConfigFields.of(config, name)
    model_type = fields.text("model_type", default="")
    form = Form(fields, model_type)
    layers = layers_of(config, name, form)
    return replace(
        model_around(fields, form, name, layers),
        notes=(*form.assumed(), *dict.fromkeys(form.notes)),
    )


def layers_of(config: Mapping[str, Any], name: str, form: Form) -> list[Layer]:
    """What a layer says about itself is said once in the notes of `form`."""
    fields = form.fields
    count, hidden = size(fields, "layers"), size(fields, "hidden")
    words = words_of(fields, form, count)
    sparse = sparse_layers(fields, form, count)
    layers = []
    for index in range(count):
        own = form.at(ConfigFields.of(at_layer(config, index, count, near=words[index] == NEAR), name))
        layers.append(_layer(own, words[index], sparse[index], hidden))
        form.notes += own.notes
    return [replace(layers[0], further=layers[0].further + form.matrices("first")), *layers[1:]]


def model_around(fields: ConfigFields, form: Form, name: str, layers: list[Layer], **more: Any) -> Model:
    """Embedding, positions and head, as the form has them, around the layers."""
    hidden, norm = size(fields, "hidden"), form.norm
    learned = form.flag("learned_positions")
    narrow = form.size("embedding_width")
    return assemble(
        fields, name, form.model_type or "unknown", layers,
        **{
            "hidden": hidden,
            "vocab": size(fields, "vocab"),
            "norm": norm,
            "norm_bias": form.flag("norm_bias", norm == "layer"),
            "tied": form.flag("tied", fields.flag("tie_word_embeddings", False)),
            "positions": size(fields, "positions") + form.whole("position_offset", 0) if learned else 0,
            "rotary": form.flag("rotary", not learned),
            "dropout": form.flag("dropout") and _drops(fields),
            "token_types": form.size("token_types"),
            "embedding_norm": form.flag("embedding_norm"),
            "final_norm": form.flag("final_norm", True),
            "head_bias": form.flag("head_bias"),
            "head_transform": form.flag("head_transform"),
            "pooler": form.flag("pooler"),
            "embedding_width": narrow if narrow != hidden else 0,
            "streams": fields.whole("hc_mult", default=1, most=64) if form.flag("streams") else 1,
            **more,
        },
    )  # fmt: skip


def _drops(fields: ConfigFields) -> bool:
    """Whether any share that a file states is dropped; one that states none drops as its paper did."""
    stated = [fields.number(name) for name in DROPOUTS if fields.has(name)]
    return not stated or max(stated) > 0


def _layer(form: Form, word: str, sparse: bool, hidden: int) -> Layer:
    fields = form.fields
    layer = Layer(norms=form.whole("norms", 0 if form.norm == "none" else 2))
    if word == LINEAR:
        layer = joined(layer, scan_of(fields, form, hidden))
    else:
        attention = attention_of(fields, form, word)
        layer = replace(layer, attention=attention, further=beside_attention(fields, form, attention, hidden))
        if fields.flag(CROSSES, False):
            cross = replace(attention, causal=False, window=0, qk_norm="head")
            layer = replace(layer, attention=None, cross=cross, cross_tokens=fields.whole(SEEN))
        if word == BOTH:
            layer = joined(layer, scan_of(fields, form, hidden))
    glu = form.gated_feed_forward
    if sparse:
        layer = replace(layer, experts=experts_of(fields, form, glu=glu))
    elif form.flag("feed_forward", True):
        width = _feed_forward_width(fields, form, hidden)
        layer = replace(layer, feed_forward=FeedForward(width=width, glu=glu, bias=form.biased[2]))
    return replace(layer, further=layer.further + form.matrices("further"))


def _feed_forward_width(fields: ConfigFields, form: Form, hidden: int) -> int:
    named, times = form.text("ffn"), form.whole("ffn_times", 0)
    if fields.has("dense_intermediate_size"):
        # of the layers between those with experts
        return fields.whole("dense_intermediate_size")
    if named:
        width = fields.whole(named)
    else:
        width = size(fields, "ffn") if given(fields, "ffn") or not times else times * hidden
    if fields.has("block_auto_adjust_ff_dim") and fields.flag("block_auto_adjust_ff_dim"):
        # two thirds, stretched and rounded up (LFM2)
        step = fields.whole("block_multiple_of", default=256)
        width = -(-int(fields.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3)) // step) * step
    return width // form.whole("ffn_share", 1)
