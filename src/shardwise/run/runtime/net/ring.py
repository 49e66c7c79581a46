"""Ring attention: keys and values go round the context-parallel ranks while each keeps its queries.

The forward keeps the block that arrived last instead of its own: sent back the other way round in the backward, beside
its gradient, it visits every rank and ends where it belongs, so no message carries a gradient alone.

A rank holds a piece from the front of the sequence and its mirror from the back. Of a block that comes from a rank
before it all its queries see the front piece, of one from a rank behind it the queries of the back piece see all: half
of the square either way, and the causal triangle of its own block. Nothing else is computed.
"""

from typing import Any

import torch
from torch import Tensor

from shardwise.run.runtime.net.attention import backward_block, forward_block, joined, rows, rowwise_sum, sequence_first
from shardwise.run.runtime.net.device_attention import How, has_kernel, kernel_backward, kernel_forward
from shardwise.run.runtime.parallel.comm import RankComm, RankGroup
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.widened import widened


class RingMask:
    """Which queries of this rank see which keys of another's block."""

    def __init__(self, index: int, source: int, length: int) -> None:
        half = length // 2
        self.causal = index == source
        self.queries = slice(half, length) if source > index else slice(0, length)
        self.keys = slice(0, half) if source < index else slice(0, length)

    def places(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """For the mask: in a causal block by order, elsewhere all keys come before all queries."""
        at = torch.arange(length, device=device)
        return (at, at) if self.causal else (at[self.queries] + length, at[self.keys])


class RingAttention(AutogradOp):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, comm: RankComm, cp: RankGroup) -> Tensor:
        both, ctx.widths = torch.cat([k, v], dim=-1), [k.shape[-1], v.shape[-1]]
        out, lse, ctx.hows = None, None, {}
        for step in range(cp.size):
            if step:
                both = comm.passed_on(both, cp, 1)
            source = (cp.index - step) % cp.size
            seen = RingMask(cp.index, source, len(q))
            keys, values = torch.split(both, ctx.widths, dim=-1)
            more, more_lse, ctx.hows[source] = _forward(seen, q, keys, values)
            if out is None or lse is None:
                out, lse = more, more_lse
            else:
                part = seen.queries
                out[:, part], lse[:, part] = joined(out[:, part], lse[:, part], more, more_lse)
        assert out is not None
        y = sequence_first(out, q)
        ctx.save_for_backward(q, both, y, lse)
        ctx.comm, ctx.cp = comm, cp
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, block, out, lse = ctx.saved_tensors
        cp: RankGroup = ctx.cp
        by_q, both = torch.zeros_like(q), torch.stack([block, torch.zeros_like(block)])
        for step in range(cp.size):
            if step:
                both = ctx.comm.passed_on(both, cp, -1)
            source = (cp.index + 1 + step) % cp.size
            seen = RingMask(cp.index, source, len(q))
            keys, values = torch.split(both[0], ctx.widths, dim=-1)
            more, by_k, by_v = _backward(seen, grad, q, keys, values, out, lse, ctx.hows[source])
            by_q[seen.queries] += more
            both[1, seen.keys] += torch.cat([by_k, by_v], dim=-1)
        return by_q, *torch.split(both[1], ctx.widths, dim=-1), None, None


def _forward(seen: RingMask, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, How | None]:
    """Output in fp32 and log-sum-exp, [batch x heads, queries, ...]."""
    part, keys, values = q[seen.queries], k[seen.keys], v[seen.keys]
    if not has_kernel(q, v):
        return *forward_block(part, keys, values, *seen.places(len(q), q.device)), None
    out, lse, how = kernel_forward(part, keys, values, causal=seen.causal)
    return widened(rows(out)), lse.flatten(0, 1), how


def _backward(
    seen: RingMask, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, how: How | None
) -> tuple[Tensor, Tensor, Tensor]:
    part, keys, values = q[seen.queries], k[seen.keys], v[seen.keys]
    grad, out, lse = grad[seen.queries], out[seen.queries], lse[:, seen.queries]
    if how is None:
        places = seen.places(len(q), q.device)
        return backward_block(grad, rowwise_sum(grad, out), lse, part, keys, values, *places)
    stacked = lse.reshape(q.shape[1], q.shape[2], -1)
    return kernel_backward(grad, part, keys, values, out, stacked, how)
