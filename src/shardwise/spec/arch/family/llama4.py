"""Llama 4, the text part: routed experts beside a shared one in every n-th layer, attention in chunks."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention, experts
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_FULL_EVERY = 4
"""every fourth layer has no rotary positions and sees the whole past; the others see their chunk"""
_MLP = "model.layers.{i}.feed_forward."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    text = fields.section("text_config") if fields.has("text_config") else fields
    bias, chunk = (
        text.flag("attention_bias", False),
        text.whole("attention_chunk_size", default=8192, most=10**8),
    )
    routed = experts(text, "num_local_experts", "intermediate_size", shared_width=text.whole("intermediate_size"))
    dense = FeedForward(width=text.whole("intermediate_size_mlp"), glu=True)
    step = text.whole("interleave_moe_layer_step", default=1)
    layers = []
    for index in range(text.layers()):
        window = 0 if (index + 1) % _FULL_EVERY == 0 else chunk
        heads = attention(text, bias_qkv=bias, bias_out=bias, window=window)
        sparse = (index + 1) % step == 0
        layers.append(Layer(attention=heads, experts=routed) if sparse else Layer(attention=heads, feed_forward=dense))
    return assemble(text, name, "llama4", layers)


FAMILY = Family(
    name="llama4",
    model_types=("llama4", "llama4_text"),
    read=read,
    names={
        "gate": _MLP + "gate_proj",
        "up": _MLP + "up_proj",
        "down": _MLP + "down_proj",
        "router": _MLP + "router",
        "expert.gate": _MLP + "experts.gate_up_proj|gate",
        "expert.up": _MLP + "experts.gate_up_proj|up",
        "expert.down": _MLP + "experts.down_proj",
        "shared.gate": _MLP + "shared_expert.gate_proj",
        "shared.up": _MLP + "shared_expert.up_proj",
        "shared.down": _MLP + "shared_expert.down_proj",
    },
)
