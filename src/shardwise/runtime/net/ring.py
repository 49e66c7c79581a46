"""Ring attention: keys and values go round the context-parallel ranks while each keeps its queries.

The forward keeps the block that arrived last instead of its own: sent back the other way round in the backward, beside
its gradient, it visits every rank and ends where it belongs, so no message carries a gradient alone.
"""

from typing import Any

import torch
from torch import Tensor

from shardwise.runtime.net.attention import backward_block, forward_block, joined, rowwise_sum, sequence_first
from shardwise.runtime.net.context import positions_of
from shardwise.runtime.parallel.comm import Comm, Group
from shardwise.runtime.parallel.op import Op


class RingAttention(Op):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, seq: int, comm: Comm, cp: Group) -> Tensor:
        at = positions_of(cp.index, cp.size, seq, q.device)
        both, ctx.widths = torch.cat([k, v], dim=-1), [k.shape[-1], v.shape[-1]]
        out, lse = forward_block(q, k, v, at, at)
        for step in range(1, cp.size):
            both = comm.passed_on(both, cp, 1)
            keys, values = torch.split(both, ctx.widths, dim=-1)
            keys_at = positions_of((cp.index - step) % cp.size, cp.size, seq, q.device)
            out, lse = joined(out, lse, *forward_block(q, keys, values, at, keys_at))
        y = sequence_first(out, q)
        ctx.save_for_backward(q, both, y, lse)
        ctx.seq, ctx.comm, ctx.cp = seq, comm, cp
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, block, out, lse = ctx.saved_tensors
        cp: Group = ctx.cp
        at, rowwise = positions_of(cp.index, cp.size, ctx.seq, q.device), rowwise_sum(grad, out)
        by_q, both = torch.zeros_like(q), torch.stack([block, torch.zeros_like(block)])
        for step in range(cp.size):
            if step:
                both = ctx.comm.passed_on(both, cp, -1)
            keys_at = positions_of((cp.index + 1 + step) % cp.size, cp.size, ctx.seq, q.device)
            keys, values = torch.split(both[0], ctx.widths, dim=-1)
            more, by_k, by_v = backward_block(grad, rowwise, lse, q, keys, values, at, keys_at)
            by_q += more
            both[1] += torch.cat([by_k, by_v], dim=-1)
        return by_q, *torch.split(both[1], ctx.widths, dim=-1), None, None, None
