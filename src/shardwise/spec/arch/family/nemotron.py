"""Nemotron 3 and 4: LayerNorm, rotary, squared ReLU, no biases."""

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
            width=fields.whole("intermediate_size"), glu=False, bias=fields.flag("mlp_bias", False)
        ),
    )
    return assemble(fields, name, "nemotron", [layer] * fields.layers(), norm="layer", norm_bias=True)


FAMILY = Family(name="nemotron", model_types=("nemotron",), read=read)
