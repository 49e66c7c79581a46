"""Grok-1: experts in every layer, norms before and after each block, embedding shared with the head."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention, experts
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Layer, Model

_BLOCK = "model.layers.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    routed = experts(fields, "num_experts", "intermediate_size")
    layer = Layer(attention=attention(fields), experts=routed, norms=4)
    tied = fields.flag("tie_word_embeddings", True)
    return assemble(fields, name, "grok", [layer] * fields.layers(), tied=tied)


FAMILY = Family(
    name="grok",
    model_types=("grok-1",),
    read=read,
    names={
        "q": _BLOCK + "attn.q_proj",
        "k": _BLOCK + "attn.k_proj",
        "v": _BLOCK + "attn.v_proj",
        "o": _BLOCK + "attn.o_proj",
        "norm.0": _BLOCK + "pre_attn_norm",
        "norm.1": _BLOCK + "post_attn_norm",
        "norm.2": _BLOCK + "pre_moe_norm",
        "norm.3": _BLOCK + "post_moe_norm",
        "router": _BLOCK + "moe_block.gate",
        "expert.gate": _BLOCK + "moe_block.experts.{e}.linear",
        "expert.up": _BLOCK + "moe_block.experts.{e}.linear_v",
        "expert.down": _BLOCK + "moe_block.experts.{e}.linear_1",
    },
)
