"""Falcon: attention beside feed-forward. The decoder of 40B and 180B has grouped queries and two norms, the older one
of 7B a single key/value head and one norm."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, FeedForward, Layer, Model

_BLOCK = "transformer.h.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    grouped = fields.flag("new_decoder_architecture", False)
    bias, hidden = fields.flag("bias", False), fields.whole("hidden_size")
    heads = fields.whole("num_attention_heads")
    attention = Attention(
        heads=heads,
        kv_heads=1 if not grouped and fields.flag("multi_query", True) else fields.whole("num_kv_heads", default=heads),
        head_dim=fields.divided("hidden_size", hidden, "num_attention_heads", heads),
        bias_qkv=bias,
        bias_out=bias,
    )
    width = fields.whole("ffn_hidden_size", default=4 * hidden)
    norms = 1 if not grouped and fields.flag("parallel_attn", True) else 2
    layer = Layer(attention=attention, feed_forward=FeedForward(width=width, glu=False, bias=bias), norms=norms)
    tied = fields.flag("tie_word_embeddings", True)
    layers = [layer] * fields.layers()
    rotary = not fields.flag("alibi", False)
    return assemble(fields, name, "falcon", layers, norm="layer", norm_bias=True, tied=tied, rotary=rotary)


FAMILY = Family(
    name="falcon",
    model_types=("falcon",),
    read=read,
    names={
        "token": "transformer.word_embeddings",
        "q": _BLOCK + "self_attention.query_key_value|q",
        "k": _BLOCK + "self_attention.query_key_value|k",
        "v": _BLOCK + "self_attention.query_key_value|v",
        "o": _BLOCK + "self_attention.dense",
        "norm.0": _BLOCK + "ln_attn",
        "norm.1": _BLOCK + "ln_mlp",
        "up": _BLOCK + "mlp.dense_h_to_4h",
        "down": _BLOCK + "mlp.dense_4h_to_h",
        "final_norm": "transformer.ln_f",
    },
)
