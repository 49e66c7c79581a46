"""What attention, or another mixer, sends over context- and tensor-parallel ranks besides its products' inputs and
outputs."""

from typing import Literal

import numpy as np

from shardwise.arrays import Flags, Ints
from shardwise.spec.message import Message
from shardwise.spec.model import Attention, Model
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout
from shardwise.work.ops import LayerWork, SavedTensor, Value

PHASES: tuple[Literal["forward"], Literal["backward"]] = ("forward", "backward")
GATHER: tuple[tuple[Literal["forward", "backward"], Literal["all_gather", "reduce_scatter"]], ...] = (
    ("forward", "all_gather"),
    ("backward", "reduce_scatter"),
)
"""what is gathered in the forward has its gradient summed and scattered"""


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
        )
    if stack.abilities.context_parallel == "gather":
        return LayerWork(
            collectives=tuple(
                Message("keys and values", op, "cp", layout.cp * size, on, phase)
                for phase, op in GATHER
                for size in (keys, values)
            ),
            saved=(SavedTensor("keys and values of other places", (layout.cp - 1.0) * (keys + values)),),
        )
    # backward passes their gradients too
    return LayerWork(
        working_bytes=on * _ring_working(attention, layout, element) if stack.memory.rings_in_fp32 else 0.0,
        collectives=(
            Message("key/value ring", "send", "cp", keys + values, layout.cp - 1.0, "forward"),
            Message("key/value ring", "send", "cp", 2.0 * (keys + values), layout.cp - 1.0, "backward"),
        ),
    )


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
