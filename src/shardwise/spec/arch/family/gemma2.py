"""Gemma 2: norms before and after each block, every second layer with a sliding window."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    feed_forward = FeedForward(width=fields.whole("intermediate_size"), glu=True)
    bias = fields.flag("attention_bias", False)
    full = Layer(attention=attention(fields, bias_qkv=bias, bias_out=bias), feed_forward=feed_forward, norms=4)
    window = fields.whole("sliding_window", default=4096)
    heads = attention(fields, window=window, bias_qkv=bias, bias_out=bias)
    near = Layer(attention=heads, feed_forward=feed_forward, norms=4)
    layers = [near if index % 2 == 0 else full for index in range(fields.layers())]
    return assemble(fields, name, "gemma2", layers, tied=fields.flag("tie_word_embeddings", True))


FAMILY = Family(name="gemma2", model_types=("gemma2",), read=read)
