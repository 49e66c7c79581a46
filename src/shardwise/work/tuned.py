"""A layer, or an end of the model, that is not trained as a whole: what a frozen weight leaves out, and what an adapter
adds.

A product with a frozen weight has no weight gradient and does not keep its input for one; what norms, attention and
activations keep stays, for gradients pass through them. An adapter reads the same input, and keeps it and its own
narrow middle. Nothing is kept, and no gradient computed, before the first thing that is trained.
"""

from dataclasses import dataclass, replace

import numpy as np

from shardwise.spec.arch.tensors import Tensor, layer_tensors
from shardwise.spec.arch.tuned import adapted_tensors, linear
from shardwise.spec.job import Precision
from shardwise.spec.message import Message
from shardwise.spec.model import Layer, Model
from shardwise.spec.tuning import BASES, Adapters
from shardwise.work.layout import Layout
from shardwise.work.ops import Gemm, LayerWork, SavedTensor, UnfusedOperations, Value, element_bytes

_PRODUCT = {
    "k": "qkv", "v": "qkv", "o": "attention out", "q_a": "q down", "q_b": "q up", "kv_a": "kv down", "kv_b": "kv up",
    "gate": "feed-forward up", "up": "feed-forward up", "down": "feed-forward down",
    "expert.gate": "expert up", "expert.up": "expert up", "expert.down": "expert down",
    "shared.gate": "shared up", "shared.up": "shared up", "shared.down": "shared down", "shared_gate": "shared gate",
    "latent.down": "latent down", "latent.up": "latent up",
    "cross.q": "cross query", "cross.k": "cross key, value", "cross.v": "cross key, value", "cross.o": "cross out",
    "mamba.in": "mamba in", "mamba.out": "mamba out", "delta.in": "delta in", "delta.out": "delta out",
}  # fmt: skip
"""the product in which a layer's work has a matrix; a query's is named below"""
_READS_SECOND_NORM = ("gate", "up", "router", "shared.gate", "shared.up", "shared_gate", "latent.down")
_READS_FIRST_NORM = ("q", "k", "v", "q_a", "kv_a", "kv", "mamba.in", "delta.in", "delta.gates", "pooling.kv",
                     "pooling.gate", "indexer.kv", "indexer.gate", "indexer.weights")  # fmt: skip
_INPUT_OF = {
    "feed-forward activation": ("down",), "shared activation": ("shared.down",),
    "routed tokens": ("expert.gate", "expert.up"), "expert activation": ("expert.down",),
    "latent output": ("latent.up",),
}  # fmt: skip
"""tensors that are kept for the weight gradients of these matrices and for nothing else"""
ADDED_LAUNCHES = 6.0
"""of an adapter beside its products: its output is scaled and added; backward both again, and two gradients of the
input become one"""
DEQUANTISED_LAUNCHES = 3.0
"""of one matrix: its scales, their offset, its weights (bitsandbytes, functional.py, dequantize_4bit)"""


@dataclass(frozen=True)
class _Part:
    """A matrix with an adapter, as one rank has it."""

    role: str
    product: Gemm
    outputs: Value
    inputs: Value
    narrow: Value
    """columns of A: the rank, or nothing where A is another part's"""


def tuned_layer(work: LayerWork, model: Model, layer: Layer, layout: Layout, precision: Precision) -> LayerWork:
    how = layer.tuned
    assert how is not None
    if not how.backward:
        return _passed_forward(_dequantised(work, model, layer, precision, backward=False))
    adapted = adapted_tensors(model, model.kinds.index(layer))
    roles = frozenset(_role(tensor) for tensor in adapted)
    found = replace(
        work,
        gemms=tuple(replace(gemm, weight_grad=False) for gemm in work.gemms),
        saved=_still_saved(work, layer, layout, roles),
        collectives=tuple(sent for sent in work.collectives if not sent.for_weights or _fetched(sent, roles)),
        deferred_bytes=0.0 * work.deferred_bytes,
    )
    if not how.gradient_in:
        found = _lowest(found, roles)
    found = _dequantised(found, model, layer, precision, backward=True)
    return found if how.adapters is None else _with_adapters(found, how.adapters, adapted, layout, precision)


def tuned_embedding(work: LayerWork, model: Model) -> LayerWork:
    """No gradient reaches it where it is frozen."""
    return _passed_forward(work) if model.tuning is not None and model.tuning.embedding_frozen else work


def tuned_head(work: LayerWork, model: Model, layout: Layout, precision: Precision) -> LayerWork:
    """Where the vocabulary product's weights are frozen, what the final norm makes is not kept or gathered for them."""
    tuning = model.tuning
    if tuning is None or not (tuning.head_frozen or (model.tied and tuning.embedding_frozen)):
        return work
    unread = layout.tokens * model.hidden / layout.sp * precision.act_bytes
    return replace(
        work,
        gemms=tuple(replace(g, weight_grad=not (tuning.head_frozen or g.name == "head")) for g in work.gemms),
        saved=tuple(replace(t, bytes=t.bytes - unread) if t.name == "final norm" else t for t in work.saved),
        collectives=tuple(sent for sent in work.collectives if not sent.for_weights),
    )


def _passed_forward(work: LayerWork) -> LayerWork:
    return replace(
        work,
        gemms=tuple(replace(gemm, input_grad=False, weight_grad=False) for gemm in work.gemms),
        pointwise=tuple(replace(part, backward_bytes=0.0) for part in work.pointwise),
        unfused=tuple(replace(part, backward_bytes=0.0) for part in work.unfused),
        saved=(),
        collectives=tuple(sent for sent in work.collectives if sent.phase == "forward"),
        deferred_bytes=0.0 * work.deferred_bytes,
        regions=0.0,
        forward_only=True,
    )


def _role(tensor: Tensor) -> str:
    return tensor.role.removesuffix(".weight")


def _still_saved(work: LayerWork, layer: Layer, layout: Layout, adapted: frozenset[str]) -> tuple[SavedTensor, ...]:
    found: list[SavedTensor] = []
    norms = _norm_outputs(work, layer, adapted)
    for tensor in work.saved:
        readers = _INPUT_OF.get(tensor.name)
        if tensor.name == "norm output":
            norms -= 1
            if norms < 0:
                continue
        elif readers is not None and not adapted.intersection(readers):
            continue
        elif tensor.name == "attention output" and "o" not in adapted:
            # a fused kernel needs its output again
            tensor = replace(tensor, bytes=np.where(layout.policies.attention > 0, 0.0, tensor.bytes))
        elif tensor.name == "gate and gated output" and "o" not in adapted:
            tensor = replace(tensor, bytes=tensor.bytes / 2.0)
        elif tensor.name == "latents":
            tensor = replace(tensor, bytes=tensor.bytes * _latents_kept(layer, adapted))
        found.append(tensor)
    return tuple(found)


def _norm_outputs(work: LayerWork, layer: Layer, adapted: frozenset[str]) -> int:
    """Of the outputs of norms, those that an adapter reads: one for each block, or where every product rounds it for
    itself one for each product."""
    kept = sum(tensor.name == "norm output" for tensor in work.saved)
    first, second = (adapted.intersection(roles) for roles in (_READS_FIRST_NORM, _READS_SECOND_NORM))
    crossed = adapted.intersection(("cross.q",))
    others = {role for role in adapted if role.startswith("further.")}
    if kept > layer.blocks:
        return min(len(first) + len(second) + len(crossed) + len(others), kept)
    return min(sum(map(bool, (first, second, crossed, others))), kept)


def _latents_kept(layer: Layer, adapted: frozenset[str]) -> float:
    """Latents before their norms stay for these; after them for the products that raise them."""
    attention = layer.attention
    if attention is None or not attention.latent:
        return 1.0
    before = attention.q_lora + attention.kv_lora + attention.rope_dim
    after = attention.q_lora * ("q_b" in adapted) + attention.kv_lora * ("kv_b" in adapted)
    return (before + after) / (before + attention.q_lora + attention.kv_lora)


def _fetched(sent: Message[Value], adapted: frozenset[str]) -> bool:
    """Whether an adapter's gradient needs an input that is gathered once more for weight gradients."""
    behind = sent.name.startswith("feed_forward")
    return bool(adapted.intersection(_READS_SECOND_NORM if behind else (*_READS_FIRST_NORM, "q_b", "kv_b")))


def _lowest(work: LayerWork, adapted: frozenset[str]) -> LayerWork:
    """The first layer that has an adapter: no gradient leaves it, so products that read its input compute none."""
    if not adapted.intersection(_READS_FIRST_NORM):
        return work
    reading = {_product_of(role, work) for role in _READS_FIRST_NORM}
    return replace(work, gemms=tuple(replace(g, input_grad=g.name not in reading) for g in work.gemms))


def _product_of(role: str, work: LayerWork) -> str:
    if role == "q":
        return "q" if any(gemm.name == "q" for gemm in work.gemms) else "qkv"
    return _PRODUCT.get(role, role.removeprefix("further."))


def _dequantised(work: LayerWork, model: Model, layer: Layer, precision: Precision, *, backward: bool) -> LayerWork:
    """Quantised matrices are written out before each product with them, and again for the input's gradient."""
    base = model.tuning.base if model.tuning is not None else ""
    if not base:
        return work
    names = {_product_of(_role(t), work) for t in _matrices(model, layer)}
    element, moved, largest = element_bytes(precision), 0.0 * work.working_bytes, 0.0 * work.working_bytes
    number = 0.0
    for gemm in work.gemms:
        if gemm.name in names:
            weights = gemm.n * gemm.k * gemm.batch
            moved = moved + weights * (BASES[base] + element)
            largest = np.maximum(largest, weights * element)
            number += 1.0
    wide = UnfusedOperations("dequantise", moved, moved * backward, 2.0 * DEQUANTISED_LAUNCHES * number)
    return replace(work, unfused=(*work.unfused, wide), working_bytes=work.working_bytes + largest)


def _matrices(model: Model, layer: Layer) -> tuple[Tensor, ...]:
    return tuple(t for t in layer_tensors(model, model.kinds.index(layer)) if linear(t))


def _with_adapters(
    work: LayerWork, adapters: Adapters, adapted: tuple[Tensor, ...], layout: Layout, precision: Precision
) -> LayerWork:
    element, rank = element_bytes(precision), float(adapters.rank)
    gemms, saved, added = list(work.gemms), list(work.saved), list(work.unfused)
    deferred, working = work.deferred_bytes, work.working_bytes
    parts, kept = _parts(work, adapted, layout, rank), set[int]()
    for part in parts:
        base, rows = part.product, part.product.m * part.product.batch
        down = replace(base, name=f"{part.role} A", n=part.narrow, k=part.inputs, weight_grad=True,
                       of_adapter=True)  # fmt: skip
        up = replace(base, name=f"{part.role} B", n=part.outputs, k=rank, input_grad=True, weight_grad=True,
                     of_adapter=True)  # fmt: skip
        gemms += [*([down] if np.any(part.narrow) else []), up]
        saved.append(SavedTensor("adapter middle", element * rows * part.narrow, repeated_by=base.repeated_by))
        out, read = element * rows * part.outputs, element * rows * part.inputs
        added.append(UnfusedOperations("adapter added", 5.0 * out, 2.0 * out + 3.0 * read, ADDED_LAUNCHES,
                                       repeated_by=base.repeated_by))  # fmt: skip
        shared = next((n for n, roles in enumerate((_READS_FIRST_NORM, _READS_SECOND_NORM)) if part.role in roles), -1)
        # an input is kept once for all that read it, and what a norm makes by shards of the sequence
        inputs = part.inputs if shared < 0 else part.inputs / layout.sp * (shared not in kept)
        kept.add(shared)
        deferred = deferred + element * rows * (inputs + part.outputs + 2.0 * part.narrow)
        if adapters.magnitudes:
            saved.append(SavedTensor("outputs before magnitudes", 2.0 * out, repeated_by=base.repeated_by))
            weights = element * part.outputs * part.inputs * base.batch
            # the product of B and A is written; it and the matrix are read, their sum written and read for its norms
            added.append(UnfusedOperations("norms of rows", 5.0 * weights, 0.0, ADDED_LAUNCHES))
            gemms.append(replace(base, name=f"{part.role} BA", m=part.outputs, n=part.inputs, k=rank,
                                 input_grad=False, weight_grad=False, of_adapter=True))  # fmt: skip
            working = np.maximum(working, 2.0 * weights)
    return replace(
        work, gemms=tuple(gemms), saved=tuple(saved), unfused=tuple(added), deferred_bytes=deferred,
        working_bytes=working, extra_ops=work.extra_ops + 2.0 * len(parts),
    )  # fmt: skip


def _parts(work: LayerWork, adapted: tuple[Tensor, ...], layout: Layout, rank: float) -> list[_Part]:
    by_name = {gemm.name: gemm for gemm in work.gemms}
    found: list[_Part] = []
    seen: set[str] = set()
    for tensor in adapted:
        role, whole = _role(tensor), tensor.name.partition("[")[0]
        plain = Gemm(role, layout.tokens, 0.0, 0.0, weight_grad=False)
        product = by_name.get(_product_of(role, work), plain)
        outputs, inputs = tensor.shape[-2] + 0.0 * layout.tp, tensor.shape[-1] + 0.0 * layout.tp
        if tensor.split == "column":
            outputs = outputs / (np.minimum(layout.tp, tensor.pieces) if tensor.pieces else layout.tp)
        if tensor.split == "row":
            inputs = inputs / layout.tp
        if tensor.split == "expert":
            down = role.endswith("down")
            outputs, inputs = (outputs, inputs / layout.etp) if down else (outputs / layout.etp, inputs)
        found.append(_Part(role, product, outputs, inputs, 0.0 if whole in seen else rank))
        seen.add(whole)
    return found
