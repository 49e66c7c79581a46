"""Causal softmax attention of [sequence, batch, heads, width]; keys and values may have fewer heads.

The fused form keeps queries, keys, values, output and one log-sum-exp per query, and computes the scores again. Its
arithmetic is blocked over the keys, so that a whole square never stands in memory.
"""

from typing import Any

import torch
from torch import Tensor

from shardwise.run.runtime.net.device_attention import has_kernel, kernel_backward, kernel_forward
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.widened import widened

BLOCK = 1024
"""keys seen at once"""


def scores_of(q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
    """[rows, queries, keys] in fp32; a query sees the keys at its own position and before."""
    scores: Tensor = widened(torch.bmm(q, k.transpose(1, 2))) * q.shape[-1] ** -0.5
    return scores.masked_fill_(k_at > q_at.unsqueeze(1), float("-inf"))


def rows(x: Tensor) -> Tensor:
    """[sequence, batch, heads, width] -> [batch x heads, sequence, width]"""
    return x.flatten(1, 2).transpose(0, 1)


def repeated(x: Tensor, heads: int) -> Tensor:
    """[sequence, batch, kv heads, width] with every head as often as queries ask for it."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def summed_heads(grad: Tensor, like: Tensor) -> Tensor:
    """The other way round, for gradients [batch x heads, sequence, width]."""
    sequence, batch, heads, width = like.shape
    spread = grad.view(batch, heads, -1, sequence, width).sum(2)
    return spread.permute(2, 0, 1, 3)


def forward_block(q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor) -> tuple[Tensor, Tensor]:
    """(output, log-sum-exp) of queries over one block of keys; -inf and 0 where a query sees none of them."""
    heads = q.shape[2]
    scores = scores_of(rows(q), rows(repeated(k, heads)), q_at, k_at)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0).unsqueeze(-1))
    return torch.bmm(weights, widened(rows(repeated(v, heads)))), lse


def joined(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Two partial softmaxes as one."""
    both = torch.logaddexp(lse, more_lse)
    return out * torch.exp(lse - both).unsqueeze(-1) + more * torch.exp(more_lse - both).unsqueeze(-1), both


def backward_block(
    grad: Tensor, rowwise: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by queries, keys and values from one block of keys; `rowwise` is the sum of grad * output."""
    heads = q.shape[2]
    keys, values, incoming = rows(repeated(k, heads)), rows(repeated(v, heads)), rows(grad)
    weights = torch.exp(scores_of(rows(q), keys, q_at, k_at) - lse.unsqueeze(-1))
    by_weights = widened(torch.bmm(incoming, values.transpose(1, 2)))
    by_scores = (weights * (by_weights - rowwise.unsqueeze(-1)) * q.shape[-1] ** -0.5).to(q.dtype)
    by_values = torch.bmm(weights.to(q.dtype).transpose(1, 2), incoming)
    by_keys = torch.bmm(by_scores.transpose(1, 2), rows(q))
    by_queries = torch.bmm(by_scores, keys).transpose(0, 1).view_as(q)
    return by_queries, summed_heads(by_keys, k), summed_heads(by_values, v)


def rowwise_sum(grad: Tensor, out: Tensor) -> Tensor:
    return (widened(grad) * widened(out)).sum(-1).flatten(1, 2).t()


def sequence_first(out: Tensor, like: Tensor) -> Tensor:
    """[batch x heads, sequence, width] -> [sequence, batch, heads, width]"""
    sequence, batch, heads = like.shape[:3]
    return out.transpose(0, 1).contiguous().view(sequence, batch, heads, out.shape[-1]).to(like.dtype)


class FlashAttention(AutogradOp):
    """`at` and `keys_at`: places of queries and keys in the sequence."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, at: Tensor, keys_at: Tensor) -> Tensor:
        out, lse = forward_block(q, k[:BLOCK], v[:BLOCK], at, keys_at[:BLOCK])
        for first in range(BLOCK, len(k), BLOCK):
            block = slice(first, first + BLOCK)
            out, lse = joined(out, lse, *forward_block(q, k[block], v[block], at, keys_at[block]))
        y = sequence_first(out, q)
        ctx.save_for_backward(q, k, v, y, lse, at, keys_at)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse, at, keys_at = ctx.saved_tensors
        rowwise = rowwise_sum(grad, out)
        by_q, by_k, by_v = torch.zeros_like(q), torch.empty_like(k), torch.empty_like(v)
        for first in range(0, len(k), BLOCK):
            block = slice(first, first + BLOCK)
            more, by_k[block], by_v[block] = backward_block(
                grad, rowwise, lse, q, k[block], v[block], at, keys_at[block]
            )
            by_q += more
        return by_q, by_k, by_v, None, None


class DeviceFlashAttention(AutogradOp):
    """The GPU's own kernel, for 16-bit numbers in the order of the sequence."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y, lse, ctx.how = kernel_forward(q, k, v, causal=True)
        ctx.save_for_backward(q, k, v, y, lse)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        return kernel_backward(grad, q, k, v, out, lse, ctx.how)


def flash(q: Tensor, k: Tensor, v: Tensor, at: Tensor) -> Tensor:
    """Of whole sequences; `at`: their places, 0 to the end."""
    if has_kernel(q, v):
        y: Tensor = DeviceFlashAttention.apply(q, k, v)
    else:
        y = FlashAttention.apply(q, k, v, at, at)
    return y


class PlainAttention(AutogradOp):
    """Keeps the softmax as well, as attention in separate operations does: what selective recompute drops."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, at: Tensor) -> Tensor:
        heads = q.shape[2]
        weights = torch.softmax(scores_of(rows(q), rows(repeated(k, heads)), at, at), dim=-1).to(q.dtype)
        ctx.save_for_backward(q, k, v, weights)
        return sequence_first(torch.bmm(weights, rows(repeated(v, heads))), q)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, weights = ctx.saved_tensors
        heads, incoming = q.shape[2], rows(grad)
        by_weights = torch.bmm(incoming, rows(repeated(v, heads)).transpose(1, 2))
        inner = by_weights - (by_weights * weights).sum(-1, keepdim=True)
        by_scores = (weights * inner * q.shape[-1] ** -0.5).to(q.dtype)
        by_queries = torch.bmm(by_scores, rows(repeated(k, heads))).transpose(0, 1).view_as(q)
        by_keys = summed_heads(torch.bmm(by_scores.transpose(1, 2), rows(q)), k)
        return by_queries, by_keys, summed_heads(torch.bmm(weights.transpose(1, 2), incoming), v), None
