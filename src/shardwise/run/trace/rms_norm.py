"""RMS norm as CUDA has it: one kernel forward, one backward, the input and a scale per row kept. On a CPU torch makes
some twenty operators of it, which would keep more and launch more than the GPU does."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

Rule = tuple[list[Placement | None], list[Placement | None]]


@torch.library.custom_op("shardwise::rms_norm", mutates_args=())
def _norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight, scale


@_norm.register_fake
def _norm_shape(x: Tensor, _: Tensor, __: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@torch.library.custom_op("shardwise::rms_norm_backward", mutates_args=())
def _norm_backward(gradient: Tensor, x: Tensor, scale: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    wide, normed = gradient.float() * weight.float(), x.float() * scale
    own = (wide - normed * (wide * normed).mean(-1, keepdim=True)) * scale
    summed = (gradient.float() * normed).flatten(0, -2).sum(0)
    return own.to(x.dtype), summed.to(weight.dtype)


@_norm_backward.register_fake
def _norm_backward_shape(_: Tensor, x: Tensor, __: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], output[1], inputs[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    x, scale, weight = ctx.saved_tensors
    own, summed = _norm_backward(gradient, x, scale, weight)
    return own, summed, None


_norm.register_autograd(_differentiate, setup_context=_keep)


def _along(x: Any) -> list[Shard]:
    return [Shard(axis) for axis in range(len(x.shape) - 1)]


def _norm_rules(x: Any, *_: Any) -> list[Rule]:
    whole = Replicate()
    split: list[Rule] = [([shard, shard], [shard, whole, None]) for shard in _along(x)]
    return [([whole, whole], [whole, whole, None]), *split]


def _norm_backward_rules(_: Any, x: Any, *__: Any) -> list[Rule]:
    whole = Replicate()
    split: list[Rule] = [([shard, Partial()], [shard, shard, shard, whole]) for shard in _along(x)]
    return [([whole, whole], [whole, whole, whole, whole]), *split]


register_sharding(torch.ops.shardwise.rms_norm.default)(_norm_rules)
register_sharding(torch.ops.shardwise.rms_norm_backward.default)(_norm_backward_rules)


def fused_as_on_cuda(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`original` stays where CUDA does not fuse either: several axes, no weight, two dtypes."""

    def rms_norm(
        input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        one_kind = weight is not None and isinstance(input, DTensor) == isinstance(weight, DTensor)
        if weight is None or not one_kind or len(normalized_shape) != 1 or weight.dtype != input.dtype:
            return original(input, normalized_shape, weight, eps)
        normed: Tensor = _norm(input, weight, torch.finfo(input.dtype).eps if eps is None else eps)[0]
        return normed

    return rms_norm
