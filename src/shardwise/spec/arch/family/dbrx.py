"""DBRX: sixteen experts, four per token, LayerNorm without biases."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, Experts, Layer, Model

_BLOCK = "transformer.blocks.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    hidden, heads = fields.whole("d_model"), fields.whole("n_heads")
    heads_config, experts_config = fields.section("attn_config"), fields.section("ffn_config")
    attention = Attention(
        heads=heads,
        kv_heads=heads_config.whole("kv_n_heads", default=heads),
        head_dim=fields.divided("d_model", hidden, "n_heads", heads),
    )
    experts = Experts(
        count=experts_config.whole("moe_num_experts", most=10**5),
        top_k=experts_config.whole("moe_top_k", most=10**5),
        width=experts_config.whole("ffn_hidden_size"),
    )
    layers = [Layer(attention=attention, experts=experts)] * fields.layers("n_layers")
    return assemble(fields, name, "dbrx", layers, hidden=hidden, norm="layer")


FAMILY = Family(
    name="dbrx",
    model_types=("dbrx",),
    read=read,
    names={
        "token": "transformer.wte",
        "q": _BLOCK + "norm_attn_norm.attn.Wqkv|q",
        "k": _BLOCK + "norm_attn_norm.attn.Wqkv|k",
        "v": _BLOCK + "norm_attn_norm.attn.Wqkv|v",
        "o": _BLOCK + "norm_attn_norm.attn.out_proj",
        "norm.0": _BLOCK + "norm_attn_norm.norm_1",
        "norm.1": _BLOCK + "norm_attn_norm.norm_2",
        "router": _BLOCK + "ffn.router.layer",
        "expert.gate": _BLOCK + "ffn.experts.mlp.w1|{e}",
        "expert.up": _BLOCK + "ffn.experts.mlp.v1|{e}",
        "expert.down": _BLOCK + "ffn.experts.mlp.w2|{e}",
        "final_norm": "transformer.norm_f",
    },
)
