"""The two ends of the model: embedding (first stage) and head with its loss (last stage)."""

import numpy as np

from shardwise.software import Stack
from shardwise.spec.job import Precision
from shardwise.spec.model import Model
from shardwise.work.layout import Layout
from shardwise.work.loss import loss_work
from shardwise.work.ops import Gemm, LayerCollective, LayerWork, Pointwise, SavedTensor, Value, element_bytes


def embedding_work(model: Model, layout: Layout, precision: Precision, stack: Stack) -> LayerWork:
    tokens = layout.tokens
    if model.inputs == "features":
        gemm = Gemm("input", tokens, model.hidden / layout.tp, model.input_width)
        saved = (SavedTensor("input", precision.act_bytes * tokens * model.input_width, "never"),)
        whole = element_bytes(precision) * tokens * model.hidden
        cut = (layout.tp > 1).astype(np.float64)
        joined = LayerCollective("input all-gather", "all_gather", "tp", whole, cut, "forward")
        return LayerWork(gemms=(gemm,), saved=saved, collectives=(joined,))
    full = element_bytes(precision) * tokens * model.hidden
    on = (layout.tp > 1).astype(np.float64)
    sharded = on * (layout.sp > 1)
    moved = tokens * model.hidden * (2.0 + precision.residual_bytes)
    masks = (
        (SavedTensor("embedding dropout mask", tokens * model.hidden / layout.sp, "never"),) if model.dropout else ()
    )
    width = model.embedding_width or model.hidden
    widening = Gemm("embedding to model width", tokens / layout.sp, model.hidden, width)
    return LayerWork(
        gemms=(widening,) if width != model.hidden else (),
        pointwise=(Pointwise("embedding", moved, 2 * moved),),
        saved=masks,
        collectives=(
            *_looked_up(stack, full, on, sharded),
            LayerCollective("embedding all-gather", "all_gather", "tp", full, sharded, "backward"),
        ),
    )


def _looked_up(stack: Stack, full: Value, on: Value, sharded: Value) -> tuple[LayerCollective, ...]:
    """Every rank adds the rows it has; or the one that has all of them sends them."""
    if stack.loss.embedding == "broadcast":
        return (LayerCollective("embedding broadcast", "broadcast", "tp", full, on, "forward"),)
    return (
        LayerCollective("embedding all-reduce", "all_reduce", "tp", full, on - sharded, "forward"),
        LayerCollective("embedding reduce-scatter", "reduce_scatter", "tp", full, sharded, "forward"),
    )


def head_work(model: Model, layout: Layout, precision: Precision, stack: Stack) -> LayerWork:
    """Final norm, the vocabulary product and the loss over vocabulary-sharded logits."""
    tokens = layout.tokens
    shard = tokens * model.hidden / layout.sp
    columns = model.vocab / layout.tp
    if stack.loss.pads_vocab and model.inputs == "tokens":
        padded = np.ceil(columns / 128) * 128
        columns = padded if stack.loss.pads_whole_vocab else np.where(layout.tp > 1, padded, columns)
    logits = tokens * columns
    on = (layout.tp > 1).astype(np.float64)
    sharded = on * (layout.sp > 1)
    stream = precision.residual_bytes
    width = model.embedding_width or model.hidden
    full = element_bytes(precision) * tokens * width
    loss = loss_work(layout, precision, stack, columns, width)
    gemms = [Gemm("head", loss.rows, columns, width, loss.products, low_precision=False)]
    if width != model.hidden:
        gemms.append(Gemm("model to embedding width", tokens / layout.sp, width, model.hidden, low_precision=False))
    if model.streams > 1:
        n, width_in = float(model.streams), float(model.streams * model.hidden)
        gemms.append(Gemm("stream weights", tokens / layout.sp, n, width_in, low_precision=False))
    if model.head_transform:
        gemms.append(Gemm("head transform", tokens / layout.sp, model.hidden, model.hidden, low_precision=False))
    return LayerWork(
        gemms=tuple(gemms),
        pointwise=(
            Pointwise("final norm", 2 * shard * stream, 4 * shard * stream),
            *_joined_streams(model, shard * stream),
            Pointwise("loss", 2.0 * logits * loss.passes / 2, 2.0 * logits * loss.passes / 2),
        ),
        saved=(
            SavedTensor("final norm", shard * (stream * model.final_norm + precision.act_bytes), "never"),
            SavedTensor("logits and loss", loss.bytes, "never"),
        ),
        repeated=loss.repeated,
        collectives=(
            LayerCollective("head all-gather", "all_gather", "tp", full, sharded, "forward"),
            LayerCollective("loss all-reduce", "all_reduce", "tp", 4.0 * tokens, 3.0 * on, "forward"),
            LayerCollective("head all-reduce", "all_reduce", "tp", full, on - sharded, "backward"),
            LayerCollective("head reduce-scatter", "reduce_scatter", "tp", full, sharded, "backward"),
            LayerCollective("head all-gather", "all_gather", "tp", full, sharded, "backward", for_weights=True),
        ),
    )


def _joined_streams(model: Model, width: Value) -> tuple[Pointwise, ...]:
    """All streams are read for their sum; backward once more, two gradients are written and added."""
    n = model.streams
    return (Pointwise("streams joined", (n + 1) * width, (5 * n + 1) * width),) if n > 1 else ()


def mtp_work(model: Model, layout: Layout) -> LayerWork:
    """Joins the last hidden state and the next token's embedding: one product from twice the width."""
    join = Gemm("mtp projection", layout.tokens, model.hidden / layout.tp, 2.0 * model.hidden)
    return LayerWork(gemms=(join,))
