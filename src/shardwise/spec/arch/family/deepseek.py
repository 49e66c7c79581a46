"""DeepSeek V2 and V3, Kimi K2, Moonlight: latent attention, shared experts, prediction layers."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, experts
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    heads = _latent_attention(fields)
    dense = Layer(attention=heads, feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True))
    count = fields.layers()
    extra = fields.whole("num_nextn_predict_layers", default=0, least=0, most=64)
    if not fields.has("n_routed_experts"):
        return assemble(fields, name, "deepseek", [dense] * count, mtp_layers=extra)
    sparse = Layer(attention=heads, experts=_routed(fields))
    first = fields.whole("first_k_dense_replace", default=0, least=0, most=4096)
    step = fields.whole("moe_layer_freq", default=1)
    layers = [sparse if index >= first and index % step == 0 else dense for index in range(count)]
    return assemble(fields, name, "deepseek", layers, mtp_layers=extra)


def _latent_attention(fields: ConfigFields) -> Attention:
    rope, heads = fields.whole("qk_rope_head_dim"), fields.whole("num_attention_heads")
    bias = fields.flag("attention_bias", False)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=fields.whole("qk_nope_head_dim") + rope,
        v_head_dim=fields.whole("v_head_dim"),
        q_lora=fields.whole("q_lora_rank", default=0),
        kv_lora=fields.whole("kv_lora_rank"),
        rope_dim=rope,
        bias_qkv=bias,
        bias_out=bias,
    )


def _routed(fields: ConfigFields) -> Experts:
    width = fields.whole("moe_intermediate_size")
    return experts(
        fields,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_width=width * fields.whole("n_shared_experts", default=0, least=0, most=4096),
        # "noaux_tc" balances the experts by a learned offset on their scores
        router_bias=fields.text("topk_method", default="greedy") == "noaux_tc",
    )


FAMILY = Family(name="deepseek", model_types=("deepseek_v2", "deepseek_v3", "kimi_k2"), read=read)
