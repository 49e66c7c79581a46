"""What the ranks that share a product say to each other, differentiable: summed, passed on, gathered."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx

# torch 2.13 renamed it; the old name warns there and the new one is missing in 2.11
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Lane(Protocol):
    """The ranks of one axis as this rank sees them."""

    size: int
    rank: int
    pretended: bool
    """a trial in one process: weights that are a part in one piece need no copy"""

    def enter(self, x: Tensor) -> Tensor:
        """Whole here, used by each rank for its own share: unchanged, the gradient is summed."""

    def leave(self, x: Tensor) -> Tensor:
        """Each rank's share of a sum becomes the sum; the gradient is the same for all."""

    def gather(self, x: Tensor) -> Tensor:
        """Shares of the last axis joined; each rank takes its own part of the gradient."""

    def total(self, x: Tensor) -> Tensor:
        """The sum over the ranks, each of which goes on with it: the gradient is summed as well."""

    def enter_some(self, x: Tensor, some: "Copied") -> Tensor:
        """A weight of which other ranks hold some rows too: unchanged, the gradients of those are summed."""

    def join(self, x: Tensor, axis: int) -> Tensor:
        """Every rank's tokens, one behind the other; gradients are summed and each rank keeps those of its own."""

    def part(self, x: Tensor, axis: int) -> Tensor:
        """Each rank's share of a sum becomes the sum, of which each keeps its own tokens; gradients are joined."""


@dataclass(frozen=True)
class Copied:
    """Rows of a weight that several ranks hold."""

    axis: int
    count: int
    """of all ranks"""
    own: tuple[int, ...]
    """where they are in this rank's share"""
    places: tuple[int, ...]
    """which of all of them they are"""


def copied_rows(indices: Sequence[Sequence[int]], rank: int, axis: int) -> Copied | None:
    """None where no two ranks hold the same."""
    held = Counter(index for each in indices for index in each)
    several = sorted(index for index, ranks in held.items() if ranks > 1)
    if not several:
        return None
    place = {index: at for at, index in enumerate(several)}
    own = [at for at, index in enumerate(indices[rank]) if index in place]
    return Copied(axis, len(several), tuple(own), tuple(place[indices[rank][at]] for at in own))


class RankLane:
    """On a process group."""

    pretended = False

    def __init__(self, group: Any) -> None:
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def enter(self, x: Tensor) -> Tensor:
        return _Enter.apply(x, self.group) if x.requires_grad and self.size > 1 else x  # type: ignore[no-untyped-call]

    def leave(self, x: Tensor) -> Tensor:
        return _Leave.apply(x, self.group) if self.size > 1 else x  # type: ignore[no-untyped-call]

    def gather(self, x: Tensor) -> Tensor:
        return _Gather.apply(x, self)  # type: ignore[no-untyped-call,no-any-return]

    def total(self, x: Tensor) -> Tensor:
        return _Total.apply(x, self.group)  # type: ignore[no-untyped-call,no-any-return]

    def enter_some(self, x: Tensor, some: Copied) -> Tensor:
        return _EnterSome.apply(x, self.group, some)  # type: ignore[no-untyped-call,no-any-return]

    def join(self, x: Tensor, axis: int) -> Tensor:
        return _Join.apply(x, self, axis)  # type: ignore[no-untyped-call,no-any-return]

    def part(self, x: Tensor, axis: int) -> Tensor:
        return _Part.apply(x, self, axis)  # type: ignore[no-untyped-call,no-any-return]

    def own(self, x: Tensor, axis: int) -> Tensor:
        length = x.shape[axis] // self.size
        return x.narrow(axis, self.rank * length, length)

    def joined(self, x: Tensor, axis: int) -> Tensor:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, axis)

    def summed_own(self, x: Tensor, axis: int) -> Tensor:
        shares = torch.stack([part.contiguous() for part in x.chunk(self.size, axis)])
        out = torch.empty_like(shares[0])
        _reduce_scatter(out, shares.flatten(0, 1), group=self.group)
        return out


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


class _EnterSome(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, group: Any, some: Copied) -> Tensor:
        ctx.group, ctx.some = group, some  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        some: Copied = ctx.some  # type: ignore[attr-defined]
        own, places = (torch.tensor(each, device=grad.device) for each in (some.own, some.places))
        shape = list(grad.shape)
        shape[some.axis] = some.count
        shared = grad.new_zeros(shape).index_add_(some.axis, places, grad.index_select(some.axis, own))
        dist.all_reduce(shared, group=ctx.group)  # type: ignore[attr-defined]
        return grad.index_copy(some.axis, own, shared.index_select(some.axis, places)), None, None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, group: Any) -> Tensor:
        ctx.group = group  # type: ignore[attr-defined]
        return _summed(x, group)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.group), None  # type: ignore[attr-defined]


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: RankLane, axis: int) -> Tensor:
        ctx.lane, ctx.axis = lane, axis  # type: ignore[attr-defined]
        return lane.joined(x, axis)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.lane.summed_own(grad, ctx.axis), None, None  # type: ignore[attr-defined]


class _Part(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: RankLane, axis: int) -> Tensor:
        ctx.lane, ctx.axis = lane, axis  # type: ignore[attr-defined]
        return lane.summed_own(x, axis)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.lane.joined(grad, ctx.axis), None, None  # type: ignore[attr-defined]


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
