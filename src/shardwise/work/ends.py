"""The two ends of the model: embedding (first stage) and head with its loss (last stage)."""

from dataclasses import replace

import numpy as np

from shardwise.spec.arch.tensors import whole_head
from shardwise.spec.job import Precision
from shardwise.spec.message import Message
from shardwise.spec.model import Model
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout
from shardwise.work.loss import loss_work
from shardwise.work.ops import Gemm, LayerWork, Pointwise, SavedTensor, Value, element_bytes


def embedding_work(model: Model, layout: Layout, precision: Precision, stack: Stack) -> LayerWork:
    tokens = layout.tokens
    if model.inputs == "patches":
        return _patches_work(model, layout, precision)
    if model.inputs == "features":
        gemm = Gemm("input", tokens, model.hidden / layout.tp, model.input_width)
        saved = (SavedTensor("input", precision.act_bytes * tokens * model.input_width, "never"),)
        whole = element_bytes(precision) * tokens * model.hidden
        cut = (layout.tp > 1).astype(np.float64)
        joined = Message("input all-gather", "all_gather", "tp", whole, cut, "forward")
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
            Message("embedding all-gather", "all_gather", "tp", full, sharded, "backward"),
        ),
    )


def _patches_work(model: Model, layout: Layout, precision: Precision) -> LayerWork:
    """Patches become tokens by one product, the convolution whose stride is its width: it needs no gradient of the
    picture and keeps it for that of its weight. Learned tokens are put before them and positions added. Every
    tensor-parallel rank does all of it; with sequence parallelism each goes on with its own tokens."""
    tokens = layout.tokens
    patches = tokens - model.class_tokens * layout.sequences / layout.cp
    element, width = element_bytes(precision), tokens * model.hidden
    # the tokens are read and written when they are joined, and when positions are added; backward the gradient's sum
    # over samples is the positions', and patches are cut out of it
    added = 2.0 * width * (element + precision.residual_bytes)
    sharded = (layout.tp > 1).astype(np.float64) * (layout.sp > 1)
    dropped = (SavedTensor("embedding dropout mask", width / layout.sp, "never"),) if model.dropout else ()
    return LayerWork(
        gemms=(Gemm("patches", patches, float(model.hidden), float(model.input_width), input_grad=False),),
        pointwise=(Pointwise("patches joined", added, added),),
        saved=(SavedTensor("picture", precision.act_bytes * patches * model.input_width, "never"), *dropped),
        collectives=(Message("embedding all-gather", "all_gather", "tp", element * width, sharded, "backward"),),
    )


def _looked_up(stack: Stack, full: Value, on: Value, sharded: Value) -> tuple[Message[Value], ...]:
    """Every rank adds the rows it has; or the one that has all of them sends them."""
    if stack.loss.embedding == "broadcast":
        return (Message("embedding broadcast", "broadcast", "tp", full, on, "forward"),)
    return (
        Message("embedding all-reduce", "all_reduce", "tp", full, on - sharded, "forward"),
        Message("embedding reduce-scatter", "reduce_scatter", "tp", full, sharded, "forward"),
    )


def head_work(model: Model, layout: Layout, precision: Precision, stack: Stack) -> LayerWork:
    """Final norm, the vocabulary product and the loss: over vocabulary-sharded logits, or over all of them."""
    if whole_head(model):
        return _whole_head_work(model, layout, precision, stack)
    tokens = layout.tokens
    shard = tokens * model.hidden / layout.sp
    columns = model.vocab / layout.tp
    if stack.loss.pads_vocab and model.inputs == "tokens":
        padded = np.ceil(columns / 128) * 128
        columns = padded if stack.loss.pads_whole_vocab else np.where(layout.tp > 1, padded, columns)
    gathers = stack.loss.gathers_logits
    seen = columns * layout.tp if gathers else columns
    logits = tokens * seen
    on = (layout.tp > 1).astype(np.float64)
    sharded = on * (layout.sp > 1)
    stream = precision.residual_bytes
    width = model.embedding_width or model.hidden
    element = element_bytes(precision)
    full = element * tokens * width
    loss = loss_work(layout, precision, stack, seen, width)
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
            Message("head all-gather", "all_gather", "tp", full, sharded, "forward"),
            Message("logits all-gather", "all_gather", "tp", element * logits, on * gathers, "forward"),
            Message("loss all-reduce", "all_reduce", "tp", 4.0 * tokens, 3.0 * on * (not gathers), "forward"),
            Message("head all-reduce", "all_reduce", "tp", full, on - sharded, "backward"),
            Message("head reduce-scatter", "reduce_scatter", "tp", full, sharded, "backward"),
            Message("head all-gather", "all_gather", "tp", full, sharded, "backward", for_weights=True),
        ),
    )


def _whole_head_work(model: Model, layout: Layout, precision: Precision, stack: Stack) -> LayerWork:
    """The final norm sees all tokens; of what it makes a classifier takes one row of a sample, others every token, and
    all outputs are made of it. Every tensor-parallel rank does so, so the only message is that row's, where tokens are
    shared. What the norm made is kept whole: the row is a view of it."""
    shard = layout.tokens * model.hidden / layout.sp
    rows = layout.sequences + 0.0 * layout.tp if model.head_once else layout.tokens / layout.sp
    stream, columns = precision.residual_bytes, model.vocab + 0.0 * layout.tp
    once = replace(layout, tokens=rows)
    loss = loss_work(once, precision, stack, columns, model.hidden)
    gemms = [Gemm("head", loss.rows, columns, model.hidden, loss.products, low_precision=False)]
    if model.pooler:
        gemms.append(Gemm("pooler", rows, model.hidden, model.hidden, low_precision=False))
    sharded = (layout.tp > 1).astype(np.float64) * (layout.sp > 1) * model.head_once
    row_bytes = element_bytes(precision) * rows * model.hidden
    moved = 2.0 * rows * columns * loss.passes / 2
    return LayerWork(
        gemms=tuple(gemms),
        pointwise=(
            Pointwise("final norm", 2 * shard * stream, 4 * shard * stream),
            Pointwise("loss", moved, moved),
        ),
        saved=(
            SavedTensor("final norm", shard * (stream * model.final_norm + precision.act_bytes), "never"),
            SavedTensor("logits and loss", loss.bytes, "never"),
        ),
        repeated=loss.repeated,
        collectives=(Message("class token broadcast", "broadcast", "tp", row_bytes, sharded, "forward"),),
    )


def _joined_streams(model: Model, width: Value) -> tuple[Pointwise, ...]:
    """All streams are read for their sum; backward once more, two gradients are written and added."""
    n = model.streams
    return (Pointwise("streams joined", (n + 1) * width, (5 * n + 1) * width),) if n > 1 else ()


def mtp_work(model: Model, layout: Layout) -> LayerWork:
    """Joins the last hidden state and the next token's embedding: one product from twice the width."""
    join = Gemm("mtp projection", layout.tokens, model.hidden / layout.tp, 2.0 * model.hidden)
    return LayerWork(gemms=(join,))
