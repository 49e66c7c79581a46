"""BERT for pre-training: both directions, norms after each block, masked-word and next-sentence heads."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_EMBEDDINGS = "bert.embeddings."
_BLOCK = "bert.encoder.layer.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    layer = Layer(
        attention=attention(fields, bias_qkv=True, bias_out=True, causal=False),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=False, bias=True),
    )
    return assemble(
        fields,
        name,
        "bert",
        [layer] * fields.layers(),
        norm="layer",
        norm_bias=True,
        tied=fields.flag("tie_word_embeddings", True),
        positions=fields.whole("max_position_embeddings", default=512),
        rotary=False,
        dropout=fields.number("hidden_dropout_prob", 0.1) > 0,
        token_types=fields.whole("type_vocab_size", default=2),
        embedding_norm=True,
        final_norm=False,
        pooler=True,
        head_transform=True,
        head_bias=True,
    )


FAMILY = Family(
    name="bert",
    model_types=("bert",),
    read=read,
    names={
        "token": _EMBEDDINGS + "word_embeddings",
        "position": _EMBEDDINGS + "position_embeddings",
        "token_type": _EMBEDDINGS + "token_type_embeddings",
        "embedding_norm": _EMBEDDINGS + "LayerNorm",
        "q": _BLOCK + "attention.self.query",
        "k": _BLOCK + "attention.self.key",
        "v": _BLOCK + "attention.self.value",
        "o": _BLOCK + "attention.output.dense",
        "norm.0": _BLOCK + "attention.output.LayerNorm",
        "norm.1": _BLOCK + "output.LayerNorm",
        "up": _BLOCK + "intermediate.dense",
        "down": _BLOCK + "output.dense",
        "pooler": "bert.pooler.dense",
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "next_sentence": "cls.seq_relationship",
        "head": "cls.predictions",
    },
)
