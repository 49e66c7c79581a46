"""GPT-NeoX and Pythia: LayerNorm, biases, rotary, attention and feed-forward side by side."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_BLOCK = "gpt_neox.layers.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", True)
    layer = Layer(
        attention=attention(fields, bias_qkv=bias, bias_out=bias),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=False, bias=True),
    )
    return assemble(fields, name, "gpt_neox", [layer] * fields.layers(), norm="layer", norm_bias=True)


FAMILY = Family(
    name="gpt_neox",
    model_types=("gpt_neox",),
    read=read,
    names={
        "token": "gpt_neox.embed_in",
        "q": _BLOCK + "attention.query_key_value|q",
        "k": _BLOCK + "attention.query_key_value|k",
        "v": _BLOCK + "attention.query_key_value|v",
        "o": _BLOCK + "attention.dense",
        "norm.0": _BLOCK + "input_layernorm",
        "norm.1": _BLOCK + "post_attention_layernorm",
        "up": _BLOCK + "mlp.dense_h_to_4h",
        "down": _BLOCK + "mlp.dense_4h_to_h",
        "final_norm": "gpt_neox.final_layer_norm",
        "head": "embed_out",
    },
)
