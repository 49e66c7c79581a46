"""BLOOM: LayerNorm also on the embedding, biases, ALiBi instead of a position table, tied head."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, FeedForward, Layer, Model

_BLOCK = "transformer.h.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    hidden, heads = fields.whole("hidden_size", "n_embed"), fields.whole("n_head", "num_attention_heads")
    width = fields.divided("hidden_size", hidden, "n_head", heads)
    layer = Layer(
        attention=Attention(heads=heads, kv_heads=heads, head_dim=width, bias_qkv=True, bias_out=True),
        feed_forward=FeedForward(width=4 * hidden, glu=False, bias=True),
    )
    return assemble(
        fields,
        name,
        "bloom",
        [layer] * fields.layers("n_layer", "num_hidden_layers"),
        hidden=hidden,
        norm="layer",
        norm_bias=True,
        tied=fields.flag("tie_word_embeddings", True),
        rotary=False,
        dropout=fields.number("hidden_dropout", 0.0) > 0,
        embedding_norm=True,
    )


FAMILY = Family(
    name="bloom",
    model_types=("bloom",),
    read=read,
    names={
        "token": "transformer.word_embeddings",
        "embedding_norm": "transformer.word_embeddings_layernorm",
        "q": _BLOCK + "self_attention.query_key_value|q",
        "k": _BLOCK + "self_attention.query_key_value|k",
        "v": _BLOCK + "self_attention.query_key_value|v",
        "o": _BLOCK + "self_attention.dense",
        "norm.0": _BLOCK + "input_layernorm",
        "norm.1": _BLOCK + "post_attention_layernorm",
        "up": _BLOCK + "mlp.dense_h_to_4h",
        "down": _BLOCK + "mlp.dense_4h_to_h",
        "final_norm": "transformer.ln_f",
    },
)
