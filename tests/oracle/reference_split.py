"""Megatron's tensor and sequence parallelism and expert exchange, written by hand as autograd functions.

A group of one rank sends nothing, so the same layers serve as the unsplit reference. Activations are [sequence, batch,
width]: a gather over the sequence joins contiguous blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class Split:
    """Groups of this rank; None where the axis has one rank."""

    tp: int = 1
    sp: bool = False
    ep: int = 1
    etp: int = 1
    groups: dict[int, Any] | None = None
    """process group by size"""

    def group(self, size: int) -> Any:
        assert self.groups is not None
        return self.groups[size]

    @property
    def sequence_ranks(self) -> int:
        return self.tp if self.sp else 1


def gathered(x: Tensor, size: int, group: Any) -> Tensor:
    out = x.new_empty((x.shape[0] * size, *x.shape[1:]))
    _gather(out, x.contiguous(), group=group)
    return out


def scattered(x: Tensor, size: int, group: Any) -> Tensor:
    out = x.new_empty((x.shape[0] // size, *x.shape[1:]))
    _scatter(out, x.contiguous(), group=group)
    return out


def reduced(x: Tensor, group: Any) -> Tensor:
    out = x.contiguous().clone()
    dist.all_reduce(out, group=group)
    return out


class CopyIn(Function):
    """Identity forward, sum of the input gradients backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return reduced(grad, ctx.group), None


class SumOut(Function):
    """Sum of the partial outputs forward, identity backward."""

    @staticmethod
    def forward(_: Any, x: Tensor, group: Any) -> Tensor:
        return reduced(x, group)

    @staticmethod
    def backward(_: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class GatherIn(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, group: Any) -> Tensor:
        ctx.size, ctx.group = size, group
        return gathered(x, size, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return scattered(grad, ctx.size, ctx.group), None, None


class ScatterOut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, group: Any) -> Tensor:
        ctx.size, ctx.group = size, group
        return scattered(x, size, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return gathered(grad, ctx.size, ctx.group), None, None


class GatheredProduct(Function):
    """Gather the sequence shards, multiply; keep only the own shard and gather again for the weight gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, size: int, group: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.size, ctx.group = size, group
        return F.linear(gathered(x, size, group), weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        whole = gathered(x, ctx.size, ctx.group)
        into = scattered(grad @ weight, ctx.size, ctx.group)
        return into, grad.flatten(0, 1).t() @ whole.flatten(0, 1), None, None


class Exchange(Function):
    """all-to-all over equal blocks of the first axis, both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous(), group=ctx.group)
        return out, None


def column(x: Tensor, weight: Tensor, split: Split, bias: Tensor | None = None) -> Tensor:
    """Product with a weight cut by output columns; x holds the sequence shard under sequence parallelism."""
    if split.tp == 1:
        return F.linear(x, weight, bias)
    group = split.group(split.tp)
    if split.sp:
        y = GatheredProduct.apply(x, weight, split.tp, group)
        return y if bias is None else y + bias
    return F.linear(CopyIn.apply(x, group), weight, bias)


def row(x: Tensor, weight: Tensor, split: Split, bias: Tensor | None = None) -> Tensor:
    """Product with a weight cut by input rows; the bias is added once, after the sum."""
    if split.tp == 1:
        return F.linear(x, weight, bias)
    y = summed(F.linear(x, weight), split)
    return y if bias is None else y + bias


def summed(y: Tensor, split: Split) -> Tensor:
    if split.tp == 1:
        return y
    group = split.group(split.tp)
    return ScatterOut.apply(y, split.tp, group) if split.sp else SumOut.apply(y, group)


class VocabLoss(Function):
    """Cross entropy over logits cut by vocabulary: ranks join their maxima, target logits and sums of exponentials."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, group: Any) -> Tensor:
        scores = logits.float()
        most = scores.max(dim=-1).values
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
        scores = scores - most.unsqueeze(-1)
        inside = target < scores.shape[-1]
        found = scores.gather(-1, target.clamp(max=scores.shape[-1] - 1).unsqueeze(-1)).squeeze(-1) * inside
        dist.all_reduce(found, group=group)
        exponentials = scores.exp()
        total = exponentials.sum(dim=-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(exponentials / total.unsqueeze(-1))
        ctx.dtype = logits.dtype
        return (total.log() - found).mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (softmax,) = ctx.saved_tensors
        return (softmax * grad / softmax[..., 0].numel()).to(ctx.dtype), None, None
