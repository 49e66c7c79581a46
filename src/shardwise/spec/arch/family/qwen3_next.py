"""Qwen3-Next and Qwen3.5: three layers of the gated delta rule to one of gated attention, all with many small experts;
Qwen3.5 also dense."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shardwise.spec.arch._family import Family, assemble, attention, experts
from shardwise.spec.arch._fields import MOST_LAYERS, ConfigFields
from shardwise.spec.model import Delta, Experts, FeedForward, Layer, Model

LINEAR, FULL = "linear_attention", "full_attention"
_MLP = "model.layers.{i}.mlp."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", False)
    heads = attention(fields, qk_norm="head", gated=True, bias_qkv=bias, bias_out=bias)
    delta = _delta(fields)
    routed = _routed(fields)
    step = fields.whole("decoder_sparse_step", default=1)
    dense_only = set(fields.wholes("mlp_only_layers", least=0, most=MOST_LAYERS, default=()))
    layers = []
    for index, word in enumerate(_mixers(fields)):
        layer = Layer(attention=heads) if word == FULL else Layer(delta=delta)
        if routed is None or index in dense_only or (index + 1) % step:
            layers.append(replace(layer, feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True)))
        else:
            layers.append(replace(layer, experts=routed))
    return assemble(fields, name, "qwen3_next", layers)


def _routed(fields: ConfigFields) -> Experts | None:
    if not fields.has("num_experts"):
        return None
    shared = fields.whole("shared_expert_intermediate_size")
    return experts(fields, "num_experts", "moe_intermediate_size", shared_width=shared, shared_gate=True)


def _mixers(fields: ConfigFields) -> Sequence[str]:
    """A word for each layer, from a list or from how often attention comes."""
    count = fields.layers()
    if fields.has("layer_types"):
        words = fields.texts("layer_types", default=None, choices=(LINEAR, FULL), least=1, most=MOST_LAYERS)
        if len(words) != count:
            raise fields.refuse("layer_types", f"{count} words, as many as num_hidden_layers says")
        return words
    every = fields.whole("full_attention_interval", default=4)
    return [LINEAR if (index + 1) % every else FULL for index in range(count)]


def _delta(fields: ConfigFields) -> Delta:
    return Delta(
        key_heads=fields.whole("linear_num_key_heads"),
        value_heads=fields.whole("linear_num_value_heads"),
        key_dim=fields.whole("linear_key_head_dim"),
        value_dim=fields.whole("linear_value_head_dim"),
        conv=fields.whole("linear_conv_kernel_dim", default=4),
    )


FAMILY = Family(
    name="qwen3_next",
    model_types=("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    read=read,
    names={f"shared.{part}": f"{_MLP}shared_expert.{part}_proj" for part in ("gate", "up", "down")},
)
