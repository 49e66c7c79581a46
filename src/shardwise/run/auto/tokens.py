"""Between whole sequences on every rank and each rank's own tokens of them, with gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from shardwise.run.auto.lanes import RankLane


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: RankLane, times: float) -> Tensor:
        ctx.lane, ctx.times = lane, times  # type: ignore[attr-defined]
        return lane.own(x, 1).contiguous()

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.lane.joined(grad, 1) * ctx.times, None, None  # type: ignore[attr-defined]


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: RankLane, times: float) -> Tensor:
        ctx.lane, ctx.times = lane, times  # type: ignore[attr-defined]
        return lane.joined(x, 1)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return (ctx.lane.own(grad, 1) * ctx.times).contiguous(), None, None  # type: ignore[attr-defined]


def own_tokens(x: Tensor, lane: RankLane, times: float = 1.0) -> Tensor:
    """Whole on every rank -> own tokens; the gradient is whole again, `times` as large."""
    return _Own.apply(x, lane, times)  # type: ignore[no-untyped-call,no-any-return]


def wholes_output(lane: RankLane, times: float = 1.0) -> Callable[..., Any]:
    """A hook behind the last block: own tokens -> whole on every rank. The gradient of the whole is the same for all;
    each takes its own part of it, `times` as large."""

    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, Tensor):
            return _Whole.apply(output, lane, times)  # type: ignore[no-untyped-call]
        return (_Whole.apply(output[0], lane, times), *output[1:])  # type: ignore[no-untyped-call]

    return hook
