"""One layer as work: products, attention, element-wise passes, saved tensors and collectives, per kind of layer.

Shapes follow Megatron's split: query/key/value and the first feed-forward matrix by columns, the output and second
matrix by rows. With sequence parallelism norms and residuals hold 1/tp of the tokens, and each all-reduce becomes an
all-gather plus a reduce-scatter (arXiv:2205.05198).
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from shardwise.spec.job import Precision
from shardwise.spec.message import Message
from shardwise.spec.model import Attention, FeedForward, Layer, Model
from shardwise.spec.software import Stack
from shardwise.work.compressed import compressed_parts
from shardwise.work.context_parallel import attention_over_context, gathered_queries
from shardwise.work.delta import delta_work
from shardwise.work.experts import experts_work
from shardwise.work.further import cross_work, matrices_work, seen_by
from shardwise.work.layout import Layout
from shardwise.work.mamba import mamba_work
from shardwise.work.modules import CORE, NORM, UP, inside, named_modules, with_repeats
from shardwise.work.ops import Attend, Gemm, LayerWork, Pointwise, SavedTensor, Value, element_bytes
from shardwise.work.streams import streams_work
from shardwise.work.tuned import tuned_layer
from shardwise.work.unfused import rotation
from shardwise.work.unfused_passes import activation_passes, unfused_passes, written_out_norm


def layer_work(model: Model, layer: Layer, layout: Layout, precision: Precision, stack: Stack, seq: int) -> LayerWork:
    whole_model = model
    model, layout, seq = seen_by(model, layer, layout, seq)
    cheap_to_repeat = stack.memory.selective_experts and _plain_experts(layer)
    named = named_modules(layout)
    parts = [_norms_and_residuals(model, layer, layout, precision, stack, cheap_to_repeat)]
    element = element_bytes(precision)
    if model.streams > 1:
        parts.append(streams_work(model, layer, layout, precision))
    attention = layer.attention
    if attention is not None and attention.compressed is not None:
        parts += compressed_parts(model, attention, attention.compressed, layout, precision, stack, seq)
        parts.append(_split_collectives(model, layout, stack, "attention", element))
    elif attention is not None:
        if attention.latent:
            parts.append(_latent(model, attention, layout, element, stack))
        else:
            parts.append(_projections(model, attention, layout, element, stack))
        parts.append(_core(model, attention, layout, seq, element))
        inputs = _latent_inputs(model, attention) if attention.latent else None
        parts.append(_split_collectives(model, layout, stack, "attention", element, inputs))
        ring = len(parts)
        parts.append(inside(attention_over_context(attention, layout, element, stack), named, "core_attn"))
        if stack.abilities.attention_split == "gather-qk":
            parts.append(gathered_queries(attention, layout, element))
    if layer.further:
        parts.append(matrices_work(layer.further, layout, precision))
    if layer.cross is not None:
        parts.append(cross_work(model, layer, layer.cross, layout, element, seq))
        parts.append(_split_collectives(model, layout, stack, "cross", element))
    if layer.mixer:
        parts.append(matrices_work(layer.mixer, layout, precision))
        parts.append(_split_collectives(model, layout, stack, "mixer", element))
    if layer.mamba is not None:
        parts.append(mamba_work(model, layer.mamba, layout, precision))
        parts.append(_split_collectives(model, layout, stack, "mamba", element))
    if layer.delta is not None:
        parts.append(delta_work(model, layer.delta, layout, precision))
        parts.append(_split_collectives(model, layout, stack, "delta", element))
    if layer.feed_forward is not None:
        dense = _feed_forward(model, layer.feed_forward, layout, precision, stack)
        sent = _split_collectives(model, layout, stack, "feed_forward", element)
        parts += [inside(part, named, "mlp") for part in (dense, sent)]
    if layer.experts is not None:
        routed = experts_work(model, layer.experts, layout, precision, stack, cheap_to_repeat)
        parts.append(inside(routed, named, "moe"))
        if layer.experts.shared_width:
            shared = FeedForward(width=layer.experts.shared_width, glu=layer.experts.glu)
            beside = _feed_forward(model, shared, layout, precision, stack, name="shared")
            sent = _split_collectives(model, layout, stack, "feed_forward", element)
            parts += [inside(part, named, "moe", "shared_experts") for part in (beside, sent)]
    if attention is not None and attention.compressed is None:
        # what comes behind attention is gone again before its backward, and not there yet in its forward
        behind = sum((t.bytes for part in parts[ring + 1 :] for t in part.saved), start=0.0)
        parts[ring] = replace(parts[ring], working_bytes=np.maximum(parts[ring].working_bytes - behind, 0.0))
    whole = stack.memory.gathered_working * element * layout.tokens * model.hidden
    found = replace(
        merged := with_repeats(merge(parts), named),
        working_bytes=merged.working_bytes + np.where(layout.sp > 1, whole, 0.0),
        ops_share=layer.blocks / 2 if model.inputs != "features" else 1.0,
    )
    return found if layer.tuned is None else tuned_layer(found, whole_model, layer, layout, precision)


def _plain_experts(layer: Layer) -> bool:
    """Experts beside attention whose queries and keys come straight from the norm."""
    attention = layer.attention
    return layer.experts is not None and attention is not None and not attention.latent and not attention.compressed


def merge(parts: list[LayerWork]) -> LayerWork:
    return LayerWork(
        gemms=tuple(g for p in parts for g in p.gemms),
        attention=next((p.attention for p in parts if p.attention is not None), None),
        cross=next((p.cross for p in parts if p.cross is not None), None),
        index=next((p.index for p in parts if p.index is not None), None),
        scan=next((p.scan for p in parts if p.scan is not None), None),
        pointwise=tuple(x for p in parts for x in p.pointwise),
        unfused=tuple(x for p in parts for x in p.unfused),
        saved=tuple(x for p in parts for x in p.saved),
        collectives=tuple(x for p in parts for x in p.collectives),
        extra_ops=sum((p.extra_ops for p in parts), start=0.0),
        routed=any(p.routed for p in parts),
        working_bytes=_largest([p.working_bytes for p in parts]),
        deferred_bytes=sum((p.deferred_bytes for p in parts), start=0.0),
    )


def _largest(values: list[Value]) -> Value:
    most: Value = 0.0
    for value in values:
        most = np.maximum(most, value)
    return most


def _norms_and_residuals(
    model: Model, layer: Layer, layout: Layout, precision: Precision, stack: Stack, cheap_to_repeat: bool
) -> LayerWork:
    """Norms of model width and the two residual additions, on the sequence shard. `cheap_to_repeat`: selective
    recompute repeats the norms."""
    tokens = layout.tokens / layout.sp
    width = tokens * model.hidden
    stream = precision.residual_bytes
    saved = [SavedTensor("layer input", model.streams * width * stream, "never")]
    blocks = layer.blocks
    between = min(stream, element_bytes(precision)) if stack.kernels.rebuilds_residual else stream
    saved += [SavedTensor("norm input", model.streams * width * between)] * (blocks - 1)
    if model.streams > 1:
        saved += [SavedTensor("mix of streams", width * between)] * blocks
    kept = layout.tokens * model.hidden if stack.memory.gathered_inputs_saved else width
    if layer.norms:
        dropped: Literal["selective", "full"] = "selective" if cheap_to_repeat else "full"
        saved += [SavedTensor("norm output", kept * precision.act_bytes, dropped, NORM)] * (
            blocks + _further_copies(layer, precision, stack)
        )
    # further norms stand behind a block: the block's output is kept for them, theirs goes into the residual
    saved += [SavedTensor("post-norm input", width * element_bytes(precision))] * max(layer.norms - blocks, 0)
    if not stack.kernels.fused_norm:
        saved += [SavedTensor("norm in fp32", width * 4.0)] * blocks
    if model.dropout:
        saved += [SavedTensor("dropout mask", width)] * blocks
    copies = blocks + _further_copies(layer, precision, stack)
    passes = (
        unfused_passes(layer.norms, blocks, copies, precision, fused_norm=stack.kernels.fused_norm)
        if stack.kernels.one_kernel_per_op
        else (
            # a perceptron has no residual stream, but its ReLUs read and write as much
            Pointwise("norm", 2.0 * layer.norms * stream, 4.0 * layer.norms * stream, cheap_to_repeat),
            # several streams are added to as they are mixed
            *((Pointwise("residual", 3.0 * blocks * stream, 2.0 * blocks * stream),) if model.streams == 1 else ()),
        )
    )
    pointwise = tuple(
        Pointwise(
            p.name,
            p.forward_bytes * width,
            p.backward_bytes * width,
            p.cheap_to_repeat,
            NORM if p.name in ("norm", "rounding") else 0,
        )
        for p in passes
    )
    return LayerWork(pointwise=pointwise, saved=tuple(saved), working_bytes=2 * width * stream)


def _further_copies(layer: Layer, precision: Precision, stack: Stack) -> int:
    """Of a norm's output: one for each product beyond the first that rounds it for itself."""
    if not stack.kernels.separate_projections or precision.residual_bytes <= element_bytes(precision):
        return 0
    gated = layer.feed_forward is not None and layer.feed_forward.glu
    return 2 * (layer.attention is not None) + gated


def _projections(model: Model, attention: Attention, layout: Layout, element: float, stack: Stack) -> LayerWork:
    """Multi-head and grouped-query attention: fused query/key/value product and the output product."""
    tokens, tp = layout.tokens, layout.tp
    width = element * tokens
    query = attention.heads * attention.head_dim / tp
    # fewer key/value heads than ranks: each rank keeps a copy of one head
    kv_heads = np.maximum(attention.kv_heads / tp, 1.0)
    key, value = kv_heads * attention.head_dim, kv_heads * attention.value_dim
    out = attention.heads * attention.value_dim / tp
    gate = query if attention.gated else 0.0 * query
    made = 0.0 * key if attention.shares_keys else key if attention.values_are_keys else key + value
    qkv = Gemm("qkv", tokens, query + made + gate, model.hidden)
    whole = stack.kernels.fuses_rotation and (stack.kernels.fuses_scaled_rotation or not model.rotation_scaled)
    rotary = element * 2 * tokens * (query + key) if model.rotary and whole else 0.0
    unnormed: tuple[SavedTensor, ...] = ()
    apart: tuple[Pointwise, ...] = ()
    if attention.qk_norm != "none":
        unnormed = (SavedTensor("query and key before norm", element * tokens * (query + key)),)
        written_out = stack.kernels.one_kernel_per_op and not stack.kernels.fused_norm
        moved = written_out_norm(element) if written_out else (2.0 * element, 2.0 * element)
        apart = (Pointwise("query and key norm", *(each * tokens * (query + key) for each in moved)),)
    if stack.kernels.one_kernel_per_op and not stack.kernels.separate_projections:
        # their three gradients are written side by side for the one product
        apart += (Pointwise("split", 0.0, 2.0 * element * tokens * (query + key + value)),)
    if stack.kernels.copies_heads:
        apart += (_copied_heads(element * tokens, query, key + value, out),)
    if attention.gated:
        # output and gate are read and their product written; backward also a gradient, and two are written
        apart += (Pointwise("gate", 3 * width * gate, 5 * width * gate),)
    return LayerWork(
        gemms=(qkv, Gemm("attention out", tokens, model.hidden, out)),
        pointwise=(Pointwise("rotary", rotary, rotary), *apart),
        unfused=(rotation(tokens * (query + key)),) if model.rotary and not whole else (),
        saved=(
            SavedTensor("query, key, value", width * (query + key + value)),
            SavedTensor("attention output", width * out),
            *unnormed,
            *((SavedTensor("gate and gated output", 2 * width * gate),) if attention.gated else ()),
        ),
        working_bytes=width * (query + key + value + gate),
        deferred_bytes=width * (model.hidden / layout.sp + query + key + value + gate + out + model.hidden),
    )


def _copied_heads(width_bytes: Value, query: Value, both: Value, out: Value) -> Pointwise:
    """nanotron, models/llama.py, each read once and written once. Forward: all three are permuted, keys and values
    concatenated, then permuted again; the output is transposed. Backward: its gradient is, those of keys and values are
    joined, those of all three stacked."""
    forward = (query + both) + 2.0 * both + out
    backward = out + both + (query + both)
    return Pointwise("heads copied", 2.0 * width_bytes * forward, 2.0 * width_bytes * backward)


def _latent(model: Model, attention: Attention, layout: Layout, element: float, stack: Stack) -> LayerWork:
    """MLA: low-rank down projections (on every rank) and per-head up projections (split)."""
    tokens, tp, hidden = layout.tokens, layout.tp, model.hidden
    heads = attention.heads / tp
    nope = attention.head_dim - attention.rope_dim
    down = attention.kv_lora + attention.rope_dim
    gemms = [Gemm("kv down", tokens / layout.sp, down, hidden)]
    query = heads * attention.head_dim
    if attention.q_lora:
        gemms += [
            Gemm("q down", tokens / layout.sp, attention.q_lora, hidden),
            Gemm("q up", tokens, query, attention.q_lora, latent_up=True, repeated_by=UP),
        ]
    else:
        gemms += [Gemm("q", tokens, query, hidden)]
    up = heads * (nope + attention.value_dim)
    out = heads * attention.value_dim
    gemms += [
        Gemm("kv up", tokens, up, attention.kv_lora, latent_up=True, repeated_by=UP),
        Gemm("attention out", tokens, hidden, out),
    ]
    low = attention.q_lora + down
    # keys are rebuilt per head with the shared rotary part: query, key and value all have head width
    heads_bytes = element * tokens * (2 * query + out)
    # before and after their norms; the shared rotary part has none
    kept = 2.0 * (attention.q_lora + attention.kv_lora) + attention.rope_dim
    return LayerWork(
        gemms=tuple(gemms),
        pointwise=(
            Pointwise("rotary and concat", 2 * heads_bytes, 2 * heads_bytes, repeated_by=UP),
            Pointwise("latent norms", 8.0 * tokens * low, 16.0 * tokens * low),
        ),
        saved=(
            SavedTensor("latents", element * tokens * kept / layout.sp),
            SavedTensor(
                "query, key, value", heads_bytes, "selective" if stack.memory.latent_recompute == "up" else "full", UP
            ),
            SavedTensor("attention output", element * tokens * out),
        ),
        extra_ops=8.0,
        working_bytes=heads_bytes,
        # the down projections' weight gradients are not put off
        deferred_bytes=element
        * tokens
        * (((attention.q_lora or hidden) + attention.kv_lora) / layout.sp + query + up + out + hidden),
    )


def _core(model: Model, attention: Attention, layout: Layout, seq: int, element: float) -> LayerWork:
    """The attention itself. Context parallelism deals the causal triangle out evenly, so each rank does 1/cp of it."""
    heads = attention.heads / layout.tp
    keys = float(min(attention.window or seq, seq))
    windowed = 0 < attention.window < seq
    # a causal query sees half of the sequence; inside a window of w keys nearly all of them
    share = (1.0 - 0.5 * keys / seq if windowed else 0.5) if attention.causal else 1.0
    attend = Attend(
        layout.sequences,
        layout.local_seq,
        keys,
        heads,
        float(attention.head_dim),
        float(attention.value_dim),
        # on average a causal query meets half of a sequence but all of a window: like a sequence of twice its keys
        np.minimum((2.0 if windowed and attention.causal else 1.0) * keys, float(seq)) / layout.cp,
        share,
    )
    plain = layout.policies.attention > 0
    scores = layout.sequences * heads * layout.local_seq * float(seq)
    softmax = SavedTensor("softmax", np.where(plain, element * scores, 0.0), "selective", CORE)
    masked = np.where(plain, (element + 1.0) * scores, 0.0)
    dropout = (SavedTensor("attention dropout", masked, "selective", CORE),) if model.dropout else ()
    lse = SavedTensor("log-sum-exp", np.where(plain, 0.0, 4.0 * layout.tokens * heads), repeated_by=CORE)
    return LayerWork(attention=attend, saved=(softmax, *dropout, lse))


def _latent_inputs(model: Model, attention: Attention) -> tuple[tuple[float, bool], ...]:
    """MLA: the up projections are split, so their narrow inputs travel, not the model width; the rotary part of the
    keys is no product's input and needs no second gather."""
    query = float(attention.q_lora or model.hidden)
    return (query, True), (float(attention.kv_lora), True), (float(attention.rope_dim), False)


def _split_collectives(
    model: Model,
    layout: Layout,
    stack: Stack,
    part: str,
    element: float,
    inputs: tuple[tuple[float, bool], ...] | None = None,
) -> LayerWork:
    """Tensor parallelism around one column/row pair; counts are zero without it.

    `inputs`: the width of each tensor that enters the split products, and whether a weight gradient needs it."""
    token = element * layout.tokens
    full = token * model.hidden
    on = (layout.tp > 1).astype(np.float64)
    sharded = on * (layout.sp > 1)
    whole = on - sharded
    found = [
        Message(f"{part} all-reduce", "all_reduce", "tp", full, whole, "forward"),
        Message(f"{part} reduce-scatter", "reduce_scatter", "tp", full, sharded, "forward"),
        # backward gathers the output gradient, and each kept input again unless it was kept whole
        Message(f"{part} all-gather", "all_gather", "tp", full, sharded, "backward"),
    ]
    for width, needed in inputs or ((float(model.hidden), True),):
        wide = token * width
        again = sharded if needed and not stack.memory.gathered_inputs_saved else 0.0 * sharded
        found += [
            Message(f"{part} all-gather", "all_gather", "tp", wide, sharded, "forward"),
            Message(f"{part} all-reduce", "all_reduce", "tp", wide, whole, "backward"),
            Message(f"{part} reduce-scatter", "reduce_scatter", "tp", wide, sharded, "backward"),
            Message(f"{part} all-gather", "all_gather", "tp", wide, again, "backward", for_weights=True),
        ]
    return LayerWork(collectives=tuple(found))


def _feed_forward(
    model: Model, ff: FeedForward, layout: Layout, precision: Precision, stack: Stack, name: str = "feed-forward"
) -> LayerWork:
    tokens = layout.tokens
    width = ff.width / layout.tp
    up = width * (2.0 if ff.glu else 1.0)
    element = element_bytes(precision)
    saved = [SavedTensor(f"{name} activation", precision.act_bytes * tokens * width)]
    if model.inputs != "features":
        # a perceptron's ReLU needs its output alone, which the next product keeps
        saved.insert(0, SavedTensor(f"{name} pre-activation", element * tokens * up))
    if ff.glu and not stack.kernels.fused_glu:
        saved.append(SavedTensor(f"{name} gate", element * tokens * width))
    forward, backward = activation_passes(ff, stack)
    return LayerWork(
        gemms=(Gemm(f"{name} up", tokens, up, model.hidden), Gemm(f"{name} down", tokens, model.hidden, width)),
        pointwise=(
            Pointwise(f"{name} activation", element * tokens * width * forward, element * tokens * width * backward),
        ),
        saved=tuple(saved),
        working_bytes=element * tokens * (up + width),
        deferred_bytes=element * tokens * (model.hidden / layout.sp + up + width + model.hidden),
    )
