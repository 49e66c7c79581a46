"""Mistral: Llama with grouped queries and, in its first version, a sliding window."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    layer = Layer(
        attention=attention(fields, window=fields.whole("sliding_window", default=0)),
        feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True),
    )
    return assemble(fields, name, "mistral", [layer] * fields.layers())


FAMILY = Family(name="mistral", model_types=("mistral",), read=read)
