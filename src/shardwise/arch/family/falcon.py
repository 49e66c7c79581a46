"""Falcon 40B and 180B (the new decoder): grouped queries, attention beside feed-forward, two norms."""

from collections.abc import Mapping

from shardwise.arch._family import Family, assemble
from shardwise.arch._fields import ConfigFields
from shardwise.spec.model import Attention, FeedForward, Layer, Model

_BLOCK = "transformer.h.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    if not fields.flag("new_decoder_architecture", False):
        raise fields.refuse("new_decoder_architecture", "true (the form of Falcon 40B and 180B, the one read here)")
    bias, hidden = fields.flag("bias", False), fields.whole("hidden_size")
    heads = fields.whole("num_attention_heads")
    attention = Attention(
        heads=heads,
        kv_heads=fields.whole("num_kv_heads", default=heads),
        head_dim=fields.divided("hidden_size", hidden, "num_attention_heads", heads),
        bias_qkv=bias,
        bias_out=bias,
    )
    width = fields.whole("ffn_hidden_size", default=4 * hidden)
    layer = Layer(attention=attention, feed_forward=FeedForward(width=width, glu=False, bias=bias))
    tied = fields.flag("tie_word_embeddings", True)
    layers = [layer] * fields.layers()
    return assemble(fields, name, "falcon", layers, norm="layer", norm_bias=True, tied=tied)


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
