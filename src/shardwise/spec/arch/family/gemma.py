"""Gemma: Llama with tied embedding and heads wider than hidden / heads."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", False)
    layer = Layer(
        attention=attention(fields, bias_qkv=bias, bias_out=bias),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True),
    )
    tied = fields.flag("tie_word_embeddings", True)
    return assemble(fields, name, "gemma", [layer] * fields.layers(), tied=tied)


FAMILY = Family(name="gemma", model_types=("gemma",), read=read)
