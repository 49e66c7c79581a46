"""A sequence shared by ranks: each runs the blocks on its own tokens, and attention sees the keys and values of all.

The code around the blocks runs on whole sequences on every rank, so that positions, masks and the loss stay the
user's own.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.utils._pytree import tree_map

from shardwise.auto.plan import AutoPlan
from shardwise.auto.watch import Attention, attention_made

KEYS = -2
"""the axis of keys and values that runs over tokens"""
# torch 2.13 renamed it; the old name warns there and the new one is missing in 2.11
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class TokenLane:
    """The ranks that share a sequence."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

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


class _Scatter(torch.autograd.Function):
    """Whole on every rank -> own tokens. The gradient is whole again; FSDP2 takes the mean over these ranks, so what it
    gets of blocks is as many times too large and is made right here."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: TokenLane) -> Tensor:
        ctx.lane = lane  # type: ignore[attr-defined]
        return lane.own(x, 1).contiguous()

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        lane: TokenLane = ctx.lane  # type: ignore[attr-defined]
        return lane.joined(grad, 1) / lane.size, None


class _Join(torch.autograd.Function):
    """Own tokens -> whole on every rank; each rank takes its part of the gradient, times the ranks (see `_Scatter`)."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: TokenLane) -> Tensor:
        ctx.lane = lane  # type: ignore[attr-defined]
        return lane.joined(x, 1)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        lane: TokenLane = ctx.lane  # type: ignore[attr-defined]
        return (lane.own(grad, 1) * lane.size).contiguous(), None


class _Keys(torch.autograd.Function):
    """Keys or values of all ranks; their gradients are summed, each rank keeps its own."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, lane: TokenLane) -> Tensor:
        ctx.lane = lane  # type: ignore[attr-defined]
        return lane.joined(x, KEYS)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        lane: TokenLane = ctx.lane  # type: ignore[attr-defined]
        return lane.summed_own(grad, KEYS), None


def share_tokens(model: nn.Module, plan: AutoPlan, lane: TokenLane) -> None:
    """Blocks of the model run on this rank's tokens."""
    tokens = plan.tokens
    for place, name in enumerate(plan.order):
        block = model.get_submodule(name)
        block.register_forward_pre_hook(_entering(lane, tokens, first=place == 0), with_kwargs=True, prepend=True)
        block.forward = _attending(block.forward, lane)
    model.get_submodule(plan.order[-1]).register_forward_hook(_joining(lane))


def _entering(lane: TokenLane, tokens: int, *, first: bool) -> Callable[..., Any]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handed = [True]

        def own(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if handed and x.is_floating_point():  # the first is what the block before has made
                handed.clear()
                return _Scatter.apply(x, lane) if first else x  # type: ignore[no-untyped-call]
            axis = token_axis(x, tokens)
            return x if axis is None else lane.own(x, axis)

        return tree_map(own, args), tree_map(own, kwargs)

    return hook


def token_axis(x: Tensor, tokens: int) -> int | None:
    """The axis of an argument that runs over the tokens a rank computes: of a mask that of the queries."""
    at = [axis for axis in range(x.dim()) if x.shape[axis] == tokens]
    if x.dim() >= 2 and x.shape[-1] == x.shape[-2] == tokens:
        return x.dim() - 2
    if len(at) != 1 or (x.dim() == 4 and at[0] == 3):
        return None
    return at[0]


def _joining(lane: TokenLane) -> Callable[..., Any]:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, Tensor):
            return _Join.apply(output, lane)  # type: ignore[no-untyped-call]
        return (_Join.apply(output[0], lane), *output[1:])  # type: ignore[no-untyped-call]

    return hook


def _attending(forward: Callable[..., Any], lane: TokenLane) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with attention_made(_keys_of_all(lane)):
            return forward(*args, **kwargs)

    return called


def _keys_of_all(lane: TokenLane) -> Callable[[Attention], Attention]:
    def seeing_all(attends: Attention) -> Attention:
        def attended(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
            is_causal: bool = False, **rest: Any,
        ) -> Tensor:  # fmt: skip
            key, value = _Keys.apply(key, lane), _Keys.apply(value, lane)  # type: ignore[no-untyped-call]
            if is_causal:
                places = torch.arange(key.shape[KEYS], device=query.device)
                attn_mask = places <= (lane.rank * query.shape[KEYS] + places[: query.shape[KEYS]]).unsqueeze(1)
            return attends(query, key, value, attn_mask, dropout_p, False, **rest)

        return attended

    return seeing_all


def cannot_share_tokens(plan: AutoPlan) -> str:
    holders = {name.rpartition(".")[0] for name in plan.order}
    if len(holders) > 1:
        return f"{len(holders)} stacks of blocks ({', '.join(sorted(holders))}): the sequence of one is shared"
    if len(plan.attention) < len(plan.order):
        without = len(plan.order) - len(plan.attention)
        return f"{without} blocks have no scaled dot-product attention, which is where tokens meet"
    if not plan.tokens or plan.tokens % plan.degrees.cp:
        return f"{plan.tokens} tokens are not shared evenly by {plan.degrees.cp} ranks"
    return ""
