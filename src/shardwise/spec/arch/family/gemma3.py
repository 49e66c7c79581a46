"""Gemma 3, the text part: Gemma 2 with a norm on query and key heads and five windowed layers to one full."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    text = fields.section("text_config") if fields.has("text_config") else fields
    feed_forward = FeedForward(width=text.whole("intermediate_size"), glu=True)
    bias = text.flag("attention_bias", False)
    kinds = {
        word: Layer(
            attention=attention(text, qk_norm="head", window=window, bias_qkv=bias, bias_out=bias),
            feed_forward=feed_forward,
            norms=4,
        )
        for word, window in (
            ("full_attention", 0),
            ("sliding_attention", text.whole("sliding_window", default=4096)),
        )
    }
    count, period = text.layers(), text.whole("sliding_window_pattern", default=6)
    usual = ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(count)]
    words = text.texts("layer_types", default=usual, choices=tuple(kinds), least=count, most=count)
    tied = text.flag("tie_word_embeddings", True)
    return assemble(text, name, "gemma3", [kinds[word] for word in words], tied=tied)


FAMILY = Family(name="gemma3", model_types=("gemma3", "gemma3_text"), read=read)
