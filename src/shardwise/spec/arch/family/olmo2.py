"""OLMo 2: norms after each block, and one norm over all query heads and one over all key heads."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_BLOCK = "model.layers.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", False)
    layer = Layer(
        attention=attention(fields, qk_norm="full", bias_qkv=bias, bias_out=bias),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True),
    )
    return assemble(fields, name, "olmo2", [layer] * fields.layers())


FAMILY = Family(
    name="olmo2",
    model_types=("olmo2",),
    read=read,
    names={"norm.0": _BLOCK + "post_attention_layernorm", "norm.1": _BLOCK + "post_feedforward_layernorm"},
)
