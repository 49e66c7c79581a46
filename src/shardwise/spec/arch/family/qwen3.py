"""Qwen 3: Llama with a norm on every query and key head."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", False)
    layer = Layer(
        attention=attention(fields, qk_norm="head", bias_qkv=bias, bias_out=bias),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True),
    )
    return assemble(fields, name, "qwen3", [layer] * fields.layers())


FAMILY = Family(name="qwen3", model_types=("qwen3",), read=read)
