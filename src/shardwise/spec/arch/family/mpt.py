"""MPT (llm-foundry): GPT form; `no_bias` drops biases everywhere, ALiBi or learned positions."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, FeedForward, Layer, Model

_BLOCK = "transformer.blocks.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias, heads_config = not fields.flag("no_bias", False), fields.section("attn_config")
    hidden, heads = fields.whole("d_model"), fields.whole("n_heads")
    alibi, rope = heads_config.flag("alibi", False), heads_config.flag("rope", False)
    attention = Attention(
        heads=heads,
        kv_heads=heads_config.whole("kv_n_heads", default=heads),
        head_dim=fields.divided("d_model", hidden, "n_heads", heads),
        bias_qkv=bias,
        bias_out=bias,
        qk_norm="full" if heads_config.flag("qk_ln", False) else "none",
    )
    inner = fields.whole("expansion_ratio", default=4, most=64) * hidden
    layer = Layer(attention=attention, feed_forward=FeedForward(width=inner, glu=False, bias=bias))
    learned = fields.flag("learned_pos_emb", True) and not alibi and not rope
    return assemble(
        fields,
        name,
        "mpt",
        [layer] * fields.layers("n_layers"),
        hidden=hidden,
        norm="layer",
        norm_bias=bias,
        tied=fields.flag("tie_word_embeddings", True),
        positions=fields.whole("max_seq_len", most=10**8) if learned else 0,
        rotary=rope,
    )


FAMILY = Family(
    name="mpt",
    model_types=("mpt",),
    read=read,
    names={
        "token": "transformer.wte",
        "position": "transformer.wpe",
        "q": _BLOCK + "attn.Wqkv|q",
        "k": _BLOCK + "attn.Wqkv|k",
        "v": _BLOCK + "attn.Wqkv|v",
        "q_norm": _BLOCK + "attn.q_ln",
        "k_norm": _BLOCK + "attn.k_ln",
        "o": _BLOCK + "attn.out_proj",
        "norm.0": _BLOCK + "norm_1",
        "norm.1": _BLOCK + "norm_2",
        "up": _BLOCK + "ffn.up_proj",
        "down": _BLOCK + "ffn.down_proj",
        "final_norm": "transformer.norm_f",
    },
)
