"""What the ranks that share a product say to each other, differentiable: summed, passed on, gathered."""

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx


class Lane(Protocol):
    """The ranks of one axis as this rank sees them."""

    size: int
    rank: int

    def enter(self, x: Tensor) -> Tensor:
        """Whole here, used by each rank for its own share: unchanged, the gradient is summed."""

    def leave(self, x: Tensor) -> Tensor:
        """Each rank's share of a sum becomes the sum; the gradient is the same for all."""

    def gather(self, x: Tensor) -> Tensor:
        """Shares of the last axis joined; each rank takes its own part of the gradient."""


class RankLane:
    """On a process group."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def enter(self, x: Tensor) -> Tensor:
        return _Enter.apply(x, self.group) if x.requires_grad else x  # type: ignore[no-untyped-call]

    def leave(self, x: Tensor) -> Tensor:
        return _Leave.apply(x, self.group)  # type: ignore[no-untyped-call,no-any-return]

    def gather(self, x: Tensor) -> Tensor:
        return _Gather.apply(x, self)  # type: ignore[no-untyped-call,no-any-return]


def own_share(lane: Lane, x: Tensor, axis: int) -> Tensor:
    """This rank's part of a tensor that every rank holds whole."""
    length = x.shape[axis] // lane.size
    return lane.enter(x).narrow(axis, lane.rank * length, length)


def _summed(x: Tensor, group: Any) -> Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, group: Any) -> Tensor:
        ctx.group = group  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.group), None  # type: ignore[attr-defined]


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(_: FunctionCtx, x: Tensor, group: Any) -> Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(_: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: RankLane) -> Tensor:
        ctx.lane, ctx.width = lane, x.shape[-1]  # type: ignore[attr-defined]
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(lane.size)]
        dist.all_gather(parts, x.contiguous(), group=lane.group)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        width: int = ctx.width  # type: ignore[attr-defined]
        return grad.narrow(-1, ctx.lane.rank * width, width).contiguous(), None  # type: ignore[attr-defined]
