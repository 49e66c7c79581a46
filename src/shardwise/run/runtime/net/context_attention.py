"""Attention over context-parallel ranks, three ways: the ring, Ulysses, and gathered keys and values.

Ulysses exchanges the sequence for heads: each rank sees the whole sequence of some of the heads (arXiv:2309.14509).
"""

import torch
from torch import Tensor

from shardwise.run.runtime.net.attention import FlashAttention
from shardwise.run.runtime.net.context import Context, positions_of
from shardwise.run.runtime.net.experts import Exchange, GatherTokens
from shardwise.run.runtime.net.ring import RingAttention


def context_attention(context: Context, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[own places, batch, heads, width] -> the same for the output."""
    comm, cp = context.world.comm, context.world.cp
    if context.stack.abilities.context_parallel == "ulysses":
        return _ulysses(context, q, k, v)
    if context.stack.abilities.context_parallel == "gather":
        keys, values = (GatherTokens.apply(x, comm, cp) for x in (k, v))
        y: Tensor = FlashAttention.apply(q, keys, values, context.positions, _everyones(context))
        return y
    around: Tensor = RingAttention.apply(q, k, v, comm, cp)
    return around


def _everyones(context: Context) -> Tensor:
    """Places in the order in which ranks' shares are joined."""
    cp, device = context.world.cp, context.world.device
    return torch.cat([positions_of(rank, cp.size, context.seq, device) for rank in range(cp.size)])


def _ulysses(context: Context, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    comm, cp, at = context.world.comm, context.world.cp, _everyones(context)

    def some_heads(x: Tensor) -> Tensor:
        blocks = torch.cat(x.chunk(cp.size, dim=2))
        y: Tensor = Exchange.apply(blocks, comm, cp, None, None)
        return y

    y = FlashAttention.apply(*(some_heads(x) for x in (q, k, v)), at, at)
    back: Tensor = Exchange.apply(y, comm, cp, None, None)
    return torch.cat(back.chunk(cp.size), dim=2)
