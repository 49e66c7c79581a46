"""What attention, or another mixer, sends over context- and tensor-parallel ranks besides its products' inputs and
outputs."""

from typing import Literal

import numpy as np

from shardwise.arrays import Flags, Ints
from shardwise.spec.message import Message
from shardwise.spec.model import Attention, Model
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout
from shardwise.work.ops import LayerWork, SavedTensor, UnfusedOperations, Value

PHASES: tuple[Literal["forward"], Literal["backward"]] = ("forward", "backward")
GATHER: tuple[tuple[Literal["forward", "backward"], Literal["all_gather", "reduce_scatter"]], ...] = (
    ("forward", "all_gather"),
    ("backward", "reduce_scatter"),
)
"""what is gathered in the forward has its gradient summed and scattered"""
SUMMED = {True: (38.0, 18.0), False: (6.0, 6.0)}
"""bytes moved for each number of a ring's block, forward and backward, to add it to what other blocks gave. In fp32,
operation by operation: a block is widened (6), a difference, its product and a difference again (32); backward each
gradient is widened and added (18; torch/distributed/tensor/experimental/_attention.py, _SDPAMerger). In one kernel and
the compute precision: block and sum read, sum written (Transformer Engine, context_parallel.py,
flash_attn_fwd_out_correction and the additions of dq and dkv)"""
SUM_LAUNCHES = {True: 24.0, False: 9.0}
"""of a block, both passes"""
LATER_BLOCKS = 0.75
"""of a block's queries, or of its keys, a balanced causal ring has on average behind the first block"""
REORDERED_BYTES = 4.0
"""of a number in 16 bits that is copied into the order of heads or of the sequence"""


def whole_heads(model: Model, stack: Stack, tp: Ints, cp: Ints) -> Flags:
    """Whether context-parallel ranks that exchange heads for the sequence each get as many whole ones; a rank without
    keys and values of its own takes copies."""
    found = np.ones(np.broadcast(tp, cp).shape, dtype=np.bool_)
    if stack.abilities.context_parallel == "ulysses":
        for attention in (kind.attention for kind in model.kinds if kind.attention is not None):
            found &= (cp == 1) | (attention.heads // tp % cp == 0)
    return found


def attention_over_context(attention: Attention, layout: Layout, element: float, stack: Stack) -> LayerWork:
    """What attention sends over context-parallel ranks, and keeps for it."""
    token = element * layout.tokens
    kv_heads = np.maximum(attention.kv_heads / layout.tp, 1.0)
    keys, values = token * kv_heads * attention.head_dim, token * kv_heads * attention.value_dim
    on = (layout.cp > 1).astype(np.float64)
    if stack.abilities.context_parallel == "ulysses":
        heads = attention.heads / layout.tp
        queries, out = token * heads * attention.head_dim, token * heads * attention.value_dim
        return LayerWork(
            collectives=tuple(
                Message("heads for sequence", "all_to_all", "cp", size, on, phase)
                for phase in PHASES
                for size in (queries, keys, values, out)
            ),
            saved=(SavedTensor("output of other places", on * out),),
            # before and behind each exchange
            unfused=_moved(
                "heads reordered", layout, 2.0 * REORDERED_BYTES / element * (queries + keys + values + out)
            ),
        )
    if stack.abilities.context_parallel == "gather":
        return LayerWork(
            collectives=tuple(
                Message("keys and values", op, "cp", layout.cp * size, on, phase)
                for phase, op in GATHER
                for size in (keys, values)
            ),
            saved=(SavedTensor("keys and values of other places", (layout.cp - 1.0) * (keys + values)),),
            unfused=_moved("sequence reordered", layout, REORDERED_BYTES * layout.cp / element * (keys + values)),
        )
    # backward passes their gradients too, as wide as they are added up
    wide = stack.memory.rings_in_fp32
    back = 1.0 + (4.0 / element if wide else 1.0)
    return LayerWork(
        unfused=_ring_sums(attention, layout, wide=wide) if layout.cp.max() > 1 else (),
        working_bytes=on * _ring_working(attention, layout, element) if stack.memory.rings_in_fp32 else 0.0,
        collectives=(
            Message("key/value ring", "send", "cp", keys + values, layout.cp - 1.0, "forward"),
            Message("key/value ring", "send", "cp", back * (keys + values), layout.cp - 1.0, "backward"),
        ),
    )


def _moved(name: str, layout: Layout, bytes_: Value) -> tuple[UnfusedOperations, ...]:
    moved = np.where(layout.cp > 1, bytes_, 0.0)
    return (UnfusedOperations(name, moved, moved, 0.0),) if layout.cp.max() > 1 else ()


def _ring_sums(attention: Attention, layout: Layout, *, wide: bool) -> tuple[UnfusedOperations, ...]:
    """Outputs of a ring's blocks, and gradients of queries, keys and values, added up."""
    blocks = np.where(layout.cp > 1, 1.0 + LATER_BLOCKS * (layout.cp - 1.0), 0.0)
    heads, kv_heads = attention.heads / layout.tp, np.maximum(attention.kv_heads / layout.tp, 1.0)
    out = layout.tokens * heads * attention.value_dim
    gradients = layout.tokens * (heads * attention.head_dim + kv_heads * (attention.head_dim + attention.value_dim))
    forward, backward = SUMMED[wide]
    launches = SUM_LAUNCHES[wide] * np.where(layout.cp > 1, layout.cp, 0.0)
    return (UnfusedOperations("blocks summed", forward * blocks * out, backward * blocks * gradients, launches),)


def _ring_working(attention: Attention, layout: Layout, element: float) -> Value:
    """Of PyTorch's ring, beside what it saves: keys and values of all ranks and those it sent. Forward, an output is
    merged: the sum so far, the block's in both widths, their difference and the new sum. Backward, gradients of queries
    are summed twice, those of keys and values added, joined, sent and received, and a block's are there in 16 bits."""
    heads, kv_heads = attention.heads / layout.tp, np.maximum(attention.kv_heads / layout.tp, 1.0)
    queries = layout.tokens * heads * attention.head_dim
    both = layout.tokens * kv_heads * (attention.head_dim + attention.value_dim)
    gathered = (layout.cp + 1.0) * element * both
    forward = (16.0 + element) * layout.tokens * heads * attention.value_dim
    backward = (8.0 + 2.0 * element) * queries + (12.0 + element) * both
    return np.asarray(gathered + np.maximum(forward, backward))


def gathered_queries(attention: Attention, layout: Layout, element: float) -> LayerWork:
    """Every tensor-parallel rank gets all queries and keys; only the values stay where they were made."""
    whole = element * layout.tokens * attention.head_dim
    on = (layout.tp > 1).astype(np.float64)
    return LayerWork(
        collectives=tuple(
            Message("queries and keys", op, "tp", whole * heads, on, phase)
            for phase, op in GATHER
            for heads in (attention.heads, attention.kv_heads)
        )
    )


def heads_for_sequence(layout: Layout, element: float, widths: tuple[Value, ...]) -> tuple[Message[Value], ...]:
    """A recurrence over context-parallel ranks: each exchanges its part of the sequence for some heads of all of it,
    and back (Megatron-Core, MambaContextParallel). `widths`: of what goes there and of what comes back."""
    on = (layout.cp > 1).astype(np.float64)
    return tuple(
        Message("heads for sequence", "all_to_all", "cp", element * layout.tokens * width, on, phase)
        for phase in PHASES
        for width in widths
    )
