"""Encoder and decoder: two stacks, the second with an attention to what the first made.

The encoder's layers stand before the decoder's. It sees as many tokens as the job's sequence has, or as many positions
as its file says its input has (Whisper's 1,500 for half a minute).
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.arch.by_fields.decoder import layers_of, model_around
from shardwise.spec.arch.by_fields.form import Form
from shardwise.spec.arch.by_fields.sizes import size
from shardwise.spec.model import Layer, Matrix, Model

SECTIONS = (("encoder", "decoder"), ("encoder_config", "decoder_config"))
RENAMED = {
    "layers": ("{0}_layers", "num_{0}_layers", "{0}_num_hidden_layers"),
    "attention_heads": ("{0}_attention_heads", "num_{0}_attention_heads", "{0}_num_attention_heads"),
    "num_key_value_heads": ("{0}_num_key_value_heads",),
    "ffn_dim": ("{0}_ffn_dim",),
    "sparse_step": ("{0}_sparse_step",),
    "max_position_embeddings": ("max_{0}_position_embeddings",),
}
"""fields of one stack in a file that has both, by the name they have where there is one stack"""
CANONICAL = {"layers": "num_hidden_layers", "attention_heads": "num_attention_heads", "ffn_dim": "intermediate_size",
             "sparse_step": "decoder_sparse_step"}  # fmt: skip


def has_two_stacks(config: Mapping[str, Any]) -> bool:
    if any(isinstance(config.get(one), Mapping) and isinstance(config.get(two), Mapping) for one, two in SECTIONS):
        return True
    sizes = (name.format("decoder") for name in RENAMED["layers"])
    return config.get("is_encoder_decoder", True) is not False and any(config.get(name) for name in sizes)


def read_two_stacks(config: Mapping[str, Any], name: str) -> Model:
    whole = ConfigFields.of(config, name)
    form = Form(whole, whole.text("model_type", default=""))
    parts = {which: _part(config, which) for which in ("encoder", "decoder")}
    encoder = Form(ConfigFields.of(parts["encoder"], name), _type(parts["encoder"], form.model_type))
    decoder = Form(ConfigFields.of(parts["decoder"], name), _type(parts["decoder"], form.model_type))
    heard = form.size("source_positions")
    first = _encoded(layers_of(parts["encoder"], name, encoder), encoder, form, heard)
    made = layers_of(parts["decoder"], name, decoder)
    second = [_crossed(layer, size(encoder.fields, "hidden"), heard) for layer in made]
    model = model_around(decoder.fields, decoder, name, [*first, *second])
    said = f"the encoder sees {heard:,} positions" if heard else "the encoder sees as many tokens as the decoder"
    return replace(
        model,
        family=form.model_type or "unknown",
        notes=(*form.assumed(), f"encoder and decoder: {len(first)} and {len(second)} layers; {said}",
               *dict.fromkeys((*encoder.notes, *decoder.notes))),
    )  # fmt: skip


def _type(part: Mapping[str, Any], usual: str) -> str:
    """A section may be of a family of its own."""
    return str(part["model_type"]) if part.get("model_type") else usual


def _part(config: Mapping[str, Any], which: str) -> dict[str, Any]:
    """The configuration of one stack: its section, or the fields named after it."""
    for names in SECTIONS:
        section = config.get(names[which == "decoder"])
        if isinstance(section, Mapping):
            return {**{k: v for k, v in config.items() if k in ("vocab_size", "tie_word_embeddings")}, **section}
    own = dict(config)
    for name, spellings in RENAMED.items():
        found = next((config[s] for each in spellings if (s := each.format(which)) in config), None)
        if found is not None:
            own[CANONICAL.get(name, name)] = found
    # both stacks are read by the form of the whole
    own["is_encoder_decoder"] = False
    return own


def _encoded(layers: list[Layer], encoder: Form, form: Form, heard: int) -> list[Layer]:
    """Both directions, the encoder's own tables and its last norm."""
    hidden = size(encoder.fields, "hidden")
    found = []
    own = form.matrices("encoder_further")
    for layer in layers:
        assert layer.attention is not None
        seen = replace(layer.attention, causal=False)
        found.append(replace(layer, attention=seen, tokens=heard, further=layer.further + own))
    tables = list(form.matrices("encoder_first"))
    if encoder.flag("learned_positions") and not heard:
        rows = size(encoder.fields, "positions") + encoder.whole("position_offset", 0)
        tables.append(Matrix(name="encoder.embed_positions", outputs=rows, inputs=hidden, product=False))
    found[0] = replace(found[0], further=found[0].further + tuple(tables))
    if encoder.flag("final_norm", True):
        found[-1] = replace(found[-1], norms=found[-1].norms + 1)
    return found


def _crossed(layer: Layer, source: int, heard: int) -> Layer:
    assert layer.attention is not None
    norms = layer.norms + (2 if layer.norms == 4 else 1 if layer.norms else 0)
    cross = replace(layer.attention, causal=False, window=0, sinks=False, gated=False)
    return replace(layer, cross=cross, cross_width=source, cross_tokens=heard, norms=norms)
