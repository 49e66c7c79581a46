"""gpt-oss: experts with biases, attention sinks, every second layer with a sliding window."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention, experts, rotation_scaled
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Layer, Model

_MLP = "model.layers.{i}.mlp."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias = fields.flag("attention_bias", True)
    clamped = fields.number("swiglu_limit", 7.0) > 0.0
    routed = experts(fields, "num_local_experts", "intermediate_size", bias=True, router_bias=True, clamped=clamped)
    kinds = {
        word: Layer(
            attention=attention(fields, bias_qkv=bias, bias_out=bias, sinks=True, window=window),
            experts=routed,
        )
        for word, window in (
            ("sliding_attention", fields.whole("sliding_window", default=128)),
            ("full_attention", 0),
        )
    }
    count = fields.layers()
    usual = ["full_attention" if index % 2 else "sliding_attention" for index in range(count)]
    words = fields.texts("layer_types", default=usual, choices=tuple(kinds), least=count, most=count)
    # what the files name, and transformers takes where one does not: YaRN by 32
    scaled = rotation_scaled(fields, usual="yarn", usual_factor=32.0)
    return assemble(fields, name, "gpt_oss", [kinds[word] for word in words], rotation_scaled=scaled)


FAMILY = Family(
    name="gpt_oss",
    model_types=("gpt_oss",),
    read=read,
    names={
        "router": _MLP + "router",
        "expert.gate": _MLP + "experts.gate_up_proj|gate",
        "expert.up": _MLP + "experts.gate_up_proj|up",
        "expert.down": _MLP + "experts.down_proj",
    },
)
