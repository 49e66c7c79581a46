"""FLOP per token of the products with weights, forward and backward, of a model that may be trained in part.

A product is computed once forward, once more for the gradient of its input and once more for that of its weight: the
last where the weight is trained, the one before where something ahead of it is.
"""

from shardwise.spec.arch.tensors import (
    Tensor,
    active_share,
    embedding_tensors,
    head_share,
    input_share,
    layer_tensors,
    products_per_token,
)
from shardwise.spec.arch.tuned import adapted_tensors, trained_layer
from shardwise.spec.model import Layer, Model

_READS_LAYER_INPUT = ("q.", "k.", "v.", "q_a.", "kv_a.", "kv.", "mamba.in.", "delta.in.", "delta.gates.")


def product_flops(model: Model, seq: int) -> float:
    if model.tuning is None:
        return 6.0 * products_per_token(model, seq=seq)
    total = 0.0
    for kind, layer in enumerate(model.kinds):
        total += model.pattern.count(kind) * _layer_flops(model, kind, layer, seq)
    frozen = model.tuning.head_frozen
    table = head_share(model, seq) * model.vocab * (model.embedding_width or model.hidden)
    head_passes = 4.0 if frozen or (model.tied and model.tuning.embedding_frozen) else 6.0
    others = products_per_token(model, seq=seq) - _in_layers(model, seq) - table
    before = input_share(model, seq) * sum(t.size for t in embedding_tensors(model) if t.product)
    return total + head_passes * table + (4.0 if frozen else 6.0) * (others - before) + 2.0 * before


def repeated_flops(model: Model, seq: int) -> float:
    """Of one more forward pass through the layers that a gradient passes."""
    total = 0.0
    for kind, layer in enumerate(model.kinds):
        if layer.tuned is None or layer.tuned.backward:
            added = trained_layer(model, kind) if layer.tuned is not None else ()
            met = [t for t in (*layer_tensors(model, kind), *added) if t.product]
            total += 2.0 * model.pattern.count(kind) * sum(active_share(model, kind, t, seq) for t in met)
    return total


def _in_layers(model: Model, seq: int) -> float:
    return sum(
        model.pattern.count(kind)
        * sum(active_share(model, kind, t, seq) for t in layer_tensors(model, kind) if t.product)
        for kind in range(len(model.kinds))
    )


def _layer_flops(model: Model, kind: int, layer: Layer, seq: int) -> float:
    how, matrices = layer.tuned, [t for t in layer_tensors(model, kind) if t.product]
    each = {t.role: active_share(model, kind, t, seq) for t in matrices}
    if how is None:
        return 6.0 * sum(each.values())
    if not how.backward:
        return 2.0 * sum(each.values())
    total = 4.0 * sum(each.values())
    found = [t for t in trained_layer(model, kind) if t.product] if how.adapters is not None else []
    total += 6.0 * sum(active_share(model, kind, t, seq) for t in found)
    if not how.gradient_in and any(map(_reads_input, adapted_tensors(model, kind))):
        none = [t for t in (*matrices, *found) if _reads_input(t) and not t.role.endswith("lora_b")]
        total -= 2.0 * sum(active_share(model, kind, t, seq) for t in none)
    return total


def _reads_input(tensor: Tensor) -> bool:
    return tensor.role.startswith(_READS_LAYER_INPUT)
