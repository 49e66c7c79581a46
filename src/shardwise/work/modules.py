"""Selective recompute of named modules: what belongs to which, what runs again, and what is sent again.

Boundaries as in Megatron-Core (transformer/transformer_layer.py, multi_latent_attention.py, moe/): `mlp`, `moe` and
`shared_experts` run as a whole from their input, collectives included; `core_attn` is the attention core;
`mla_up_proj` the up projections of latents with their rotation; `layernorm` and `moe_act` make one output again.
"""

from dataclasses import replace

import numpy as np
from msgspec import structs

from shardwise.arrays import Ints
from shardwise.spec.message import Message
from shardwise.spec.policy import MODULES, module_bits
from shardwise.work.layout import Layout
from shardwise.work.ops import LayerWork, Value

CORE, UP, NORM, EXPERT_ACTIVATION = (
    module_bits(name) for name in ("core_attn", "mla_up_proj", "layernorm", "moe_act")
)  # fmt: skip


def named_modules(layout: Layout) -> Ints | None:
    """Bits of each policy; None where no policy names any."""
    bits = layout.policies.recompute_modules
    return bits if bits.any() else None


def inside(part: LayerWork, named: Ints | None, *modules: str) -> LayerWork:
    """The part, all of which belongs to these modules."""
    if named is None:
        return part
    bits = module_bits(*modules)
    return replace(
        part,
        gemms=tuple(replace(x, repeated_by=x.repeated_by | bits) for x in part.gemms),
        pointwise=tuple(replace(x, repeated_by=x.repeated_by | bits) for x in part.pointwise),
        unfused=tuple(replace(x, repeated_by=x.repeated_by | bits) for x in part.unfused),
        saved=tuple(replace(x, repeated_by=x.repeated_by | bits) for x in part.saved),
        collectives=tuple(structs.replace(x, repeated_by=x.repeated_by | bits) for x in part.collectives),
    )


def with_repeats(layer: LayerWork, named: Ints | None) -> LayerWork:
    """The layer with the collectives that its recomputed modules run once more."""
    if named is None:
        return layer
    again = tuple(_again(x, named) for x in layer.collectives if x.phase == "forward" and x.repeated_by)
    regions = np.zeros(len(named))
    for bit in range(len(MODULES)):
        regions += (named >> bit & 1) * _regions(layer, 1 << bit)
    return replace(layer, modules=named, regions=regions, collectives=(*layer.collectives, *again))


def _regions(layer: LayerWork, bit: int) -> int:
    """How often a layer has a module: every norm is one."""
    found = sum(1 for tensor in layer.saved if tensor.repeated_by & bit)
    return found if bit == NORM else min(found, 1)


def _again(sent: Message[Value], named: Ints) -> Message[Value]:
    return structs.replace(sent, count=np.where((named & sent.repeated_by) > 0, sent.count, 0.0), phase="recompute")
