"""The loss over the vocabulary: what is alive of the logits, what passes over them, and how the head is cut for it.

plain    logits in compute precision, copies of them in fp32
fused    one kernel turns the logits into their gradient in place (Transformer Engine's cross entropy to 2.16, Liger's)
chunked  logits of a few tokens at a time, so that all of them are never there; some programs compute each chunk's
         gradient at once, others run its product again in the backward pass
"""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints
from shardwise.spec.job import Precision
from shardwise.spec.policy import LOSS
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout
from shardwise.work.ops import Value, element_bytes

PLAIN_BYTES = 10.0
"""per logit: 16 bits, their copy in fp32 and one more tensor like it (exponentials, or the gradient)"""
PLAIN_PASSES = 26.0
"""bytes per logit byte: in fp32 the copy, the maximum, its subtraction, exponentials, their sum, the division, the
gradient's scaling and its rounding move 52 bytes (Megatron-LM, core/tensor_parallel/cross_entropy.py, unfused)"""
FUSED_PASSES = 5.0
"""logits are read for the log-sum-exp, read and written for the gradient, which the backward reads and writes once more
to scale it (TransformerEngine, common/triton/cross_entropy.py)"""


@dataclass(frozen=True)
class LossWork:
    rows: Value
    """tokens of one product of the head"""
    products: Value
    """how many there are"""
    bytes: Value
    """alive at the fullest moment"""
    passes: Value
    """bytes moved per logit byte of 16 bits, forward and backward"""
    repeated: Value
    """times that the head's forward runs again"""


def loss_work(layout: Layout, precision: Precision, stack: Stack, columns: Value, width: int) -> LossWork:
    """`columns`: of the vocabulary on a rank; `width`: of what the head reads."""
    own = stack.loss
    tokens, logits = layout.tokens, layout.tokens * columns
    kind = layout.policies.loss
    asked = kind.any()
    if not asked and own.loss_kind != "chunked":
        return LossWork(tokens, 1.0, _bytes(own.loss_logit_bytes, precision, logits, tokens), own.loss_passes, 0.0)
    kind = np.where(kind == 0, LOSS.index(own.loss_kind), kind)
    chunked = kind == LOSS.index("chunked")
    rows = np.where(chunked, chunk_rows(layout, stack, columns, width), tokens)
    collected = own.chunk_grad_bytes * tokens * width
    held = rows * columns * own.chunk_logit_bytes + collected
    bytes_, passes = _whole(kind, precision, stack, logits, tokens)
    return LossWork(
        rows=rows,
        products=tokens / rows,
        bytes=np.where(chunked, held, bytes_),
        passes=np.where(chunked, own.chunk_passes, passes),
        repeated=np.where(chunked, float(own.repeats_head), 0.0),
    )


def chunk_rows(layout: Layout, stack: Stack, columns: Value, width: int) -> Value:
    """Tokens of a chunk: a fixed number, a fixed share, or (Liger, ops/fused_linear_cross_entropy.py) the power of two
    at which its logits are about as large as what the head reads."""
    tokens, own = layout.tokens, stack.loss
    if own.chunk_tokens:
        return np.minimum(float(own.chunk_tokens), tokens)
    if own.loss_chunks:
        return np.maximum(tokens / own.loss_chunks, 1.0)
    fair = np.ceil(tokens / np.ceil(columns / width))
    return np.minimum(2.0 ** np.ceil(np.log2(fair)), tokens)


def _whole(kind: Ints, precision: Precision, stack: Stack, logits: Value, tokens: Value) -> tuple[Value, Value]:
    """Of a loss over all logits at once: bytes and passes. What the program has by itself its own numbers tell."""
    own = stack.loss
    fused = kind == LOSS.index("fused")
    bytes_ = np.where(fused, _bytes(0.0, precision, logits, tokens), logits * PLAIN_BYTES)
    passes = np.where(fused, FUSED_PASSES, PLAIN_PASSES)
    if own.loss_kind == "chunked":
        return bytes_, passes
    same = kind == LOSS.index(own.loss_kind)
    mine = _bytes(own.loss_logit_bytes, precision, logits, tokens)
    return np.where(same, mine, bytes_), np.where(same, own.loss_passes, passes)


def _bytes(per_logit: float, precision: Precision, logits: Value, tokens: Value) -> Value:
    """In place: the logits, and the log-sum-exp of each token."""
    return logits * per_logit if per_logit else logits * element_bytes(precision) + 4.0 * tokens
