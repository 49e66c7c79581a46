"""Llama 1 to 3 and everything that shares its form: RMSNorm, rotary positions, gated feed-forward."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", False)
    layer = Layer(
        attention=attention(fields, bias_qkv=bias, bias_out=bias),
        feed_forward=FeedForward(
            width=fields.whole("intermediate_size"), glu=True, bias=fields.flag("mlp_bias", False)
        ),
    )
    return assemble(fields, name, "llama", [layer] * fields.layers())


FAMILY = Family(name="llama", model_types=("llama",), read=read)
