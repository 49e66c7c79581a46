"""Fused operations with torch arithmetic inside: they keep for the backward pass what a fused kernel keeps, no more."""

from typing import Any

import torch
import torch.nn.functional as F
from reference_saved import named
from torch import Tensor
from torch.autograd import Function


class RmsNorm(Function):
    """Keeps its input and one number per token."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        inverse = named("statistics", torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5))
        ctx.save_for_backward(x, weight, inverse)
        return (wide * inverse * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, inverse = ctx.saved_tensors
        scaled, unit = grad.float() * weight, x.float() * inverse
        into = inverse * (scaled - unit * (scaled * unit).mean(-1, keepdim=True))
        return into.to(x.dtype), (grad * unit).flatten(0, -2).sum(0).to(weight.dtype)


class Swiglu(Function):
    """Keeps its input only; `scale` (one number per row, routing weights) is optional."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, scale)
        gate, up = x.chunk(2, dim=-1)
        y = F.silu(gate) * up
        return y if scale is None else (y * scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        x, scale = ctx.saved_tensors
        gate, up = x.chunk(2, dim=-1)
        sigmoid = torch.sigmoid(gate)
        inner = grad if scale is None else grad * scale
        into = torch.cat([inner * up * sigmoid * (1 + gate * (1 - sigmoid)), inner * F.silu(gate)], dim=-1)
        by_scale = None if scale is None else (grad * F.silu(gate) * up).sum(-1, keepdim=True).to(scale.dtype)
        return into.to(x.dtype), by_scale


class FlashAttention(Function):
    """Keeps queries, keys, values, output and one log-sum-exp per query; the backward computes the scores again.

    [rows, sequence, width] with rows = batch x heads; keys and values may have fewer heads. Returns [sequence, rows,
    width], the layout the output product reads. Computes the whole square.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = _repeated(q, k), _repeated(q, v)
        scores = torch.bmm(q, keys.transpose(1, 2)).float() * q.shape[-1] ** -0.5
        lse = named("log-sum-exp", torch.logsumexp(scores, dim=-1))
        weights = torch.exp(scores - lse.unsqueeze(-1)).to(q.dtype)
        out = named("attention output", torch.bmm(weights, values).transpose(0, 1).contiguous())
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, out, lse = ctx.saved_tensors
        keys, values, scale = _repeated(q, k), _repeated(q, v), q.shape[-1] ** -0.5
        incoming = grad.transpose(0, 1)
        weights = torch.exp(torch.bmm(q, keys.transpose(1, 2)).float() * scale - lse.unsqueeze(-1))
        by_weights = torch.bmm(incoming, values.transpose(1, 2)).float()
        rowwise = (grad * out).float().sum(-1).transpose(0, 1).unsqueeze(-1)
        by_scores = (weights * (by_weights - rowwise) * scale).to(q.dtype)
        by_values = torch.bmm(weights.to(q.dtype).transpose(1, 2), incoming)
        by_keys = torch.bmm(by_scores.transpose(1, 2), q)
        return torch.bmm(by_scores, keys), _gathered_heads(by_keys, k), _gathered_heads(by_values, v)


def _repeated(q: Tensor, x: Tensor) -> Tensor:
    return x if x.shape[0] == q.shape[0] else x.repeat_interleave(q.shape[0] // x.shape[0], dim=0)


def _gathered_heads(grad: Tensor, like: Tensor) -> Tensor:
    return grad.view(like.shape[0], -1, *grad.shape[1:]).sum(1)
