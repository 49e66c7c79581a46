"""Qwen 2 and 2.5: Llama with biases on queries, keys and values."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    layer = Layer(
        attention=attention(fields, bias_qkv=True),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True),
    )
    return assemble(fields, name, "qwen2", [layer] * fields.layers())


FAMILY = Family(name="qwen2", model_types=("qwen2",), read=read)
