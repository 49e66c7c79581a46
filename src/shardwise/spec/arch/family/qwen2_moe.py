"""Qwen 1.5 and 2 with experts: routed experts beside one gated expert that every token visits."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention, experts
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_MLP = "model.layers.{i}.mlp."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    heads = attention(fields, bias_qkv=True)
    shared = fields.whole("shared_expert_intermediate_size")
    routed = experts(fields, "num_experts", "moe_intermediate_size", shared_width=shared, shared_gate=True)
    sparse = Layer(attention=heads, experts=routed)
    dense = Layer(attention=heads, feed_forward=FeedForward(width=fields.whole("intermediate_size"), glu=True))
    step = fields.whole("decoder_sparse_step", default=1)
    dense_only = set(fields.wholes("mlp_only_layers", least=0, most=4096, default=()))
    layers = [dense if index in dense_only or (index + 1) % step != 0 else sparse for index in range(fields.layers())]
    return assemble(fields, name, "qwen2_moe", layers)


FAMILY = Family(
    name="qwen2_moe",
    model_types=("qwen2_moe",),
    read=read,
    names={f"shared.{part}": f"{_MLP}shared_expert.{part}_proj" for part in ("gate", "up", "down")},
)
