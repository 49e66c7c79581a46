"""Mixtral: Mistral whose every feed-forward is a set of experts."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention, experts
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Layer, Model

_MOE = "model.layers.{i}.block_sparse_moe."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    layer = Layer(
        attention=attention(fields, window=fields.whole("sliding_window", default=0)),
        experts=experts(fields, "num_local_experts", "intermediate_size"),
    )
    return assemble(fields, name, "mixtral", [layer] * fields.layers())


FAMILY = Family(
    name="mixtral",
    model_types=("mixtral",),
    read=read,
    names={
        "router": _MOE + "gate",
        "expert.gate": _MOE + "experts.{e}.w1",
        "expert.down": _MOE + "experts.{e}.w2",
        "expert.up": _MOE + "experts.{e}.w3",
    },
)
