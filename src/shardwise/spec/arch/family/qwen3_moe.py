"""Qwen 3 with experts: Qwen 3 attention, every `decoder_sparse_step`-th layer an expert layer."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention, experts
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", False)
    heads = attention(fields, qk_norm="head", bias_qkv=bias, bias_out=bias)
    sparse = Layer(attention=heads, experts=experts(fields, "num_experts", "moe_intermediate_size"))
    step = fields.whole("decoder_sparse_step", default=1)
    dense_only = set(fields.wholes("mlp_only_layers", least=0, most=4096, default=()))
    is_dense = [index in dense_only or (index + 1) % step != 0 for index in range(fields.layers())]
    if not any(is_dense):
        return assemble(fields, name, "qwen3_moe", [sparse] * len(is_dense))
    dense = Layer(attention=heads, feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True))
    return assemble(fields, name, "qwen3_moe", [dense if here else sparse for here in is_dense])


FAMILY = Family(name="qwen3_moe", model_types=("qwen3_moe",), read=read)
