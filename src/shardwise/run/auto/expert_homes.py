"""Experts shared out whole: each rank holds some of them and computes them for the tokens of all (expert parallelism).

Tokens and what the router chose for them are gathered, each rank takes the pairs of token and expert that are its own,
and sums go back to the ranks whose tokens they are. Gradients of experts come from the samples of all ranks.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from shardwise.run.auto.cutting import keep_stack, read_as, set_size
from shardwise.run.auto.lanes import Lane
from shardwise.run.auto.plan import ExpertHome


class _Mean(torch.autograd.Function):
    """The gradient is divided: losses are means over a rank's samples, and those of all ranks come together here."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad / ctx.ranks, None  # type: ignore[attr-defined]


def own_experts(count: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    each = count // ranks
    return tuple(tuple(range(rank * each, (rank + 1) * each)) for rank in range(ranks))


def house_experts(block: nn.Module, home: ExpertHome, lane: Lane, mean: int) -> None:
    """The block with this rank's experts alone. `mean`: ranks over which losses are means."""
    module = block.get_submodule(home.module)
    own = own_experts(home.count, lane.size)[lane.rank]
    for name in home.parameters:
        keep_stack(module.get_parameter(name), 0, own, set(), views=lane.pretended)
        if mean > 1:
            read_as(module, module, name, lambda parameter: _Mean.apply(parameter, mean))  # type: ignore[no-untyped-call]
    for size in home.sizes:
        set_size(block, size)
    chosen, grouped = (make(module.forward, lane, own[0], len(own)) for make in (_for_all, _for_each))
    module.forward = chosen if home.chosen else grouped


def _for_all(forward: Callable[..., Tensor], lane: Lane, first: int, count: int) -> Callable[..., Tensor]:
    def called(hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        hidden, chosen, weights = (lane.join(x, 0) for x in (hidden, chosen, weights))
        token, choice = ((chosen >= first) & (chosen < first + count)).nonzero(as_tuple=True)
        made = forward(
            hidden[token], (chosen[token, choice] - first).unsqueeze(-1), weights[token, choice].unsqueeze(-1)
        )
        return lane.part(torch.zeros_like(hidden).index_add(0, token, made.to(hidden.dtype)), 0)

    def by_kind(*args: Any, **kwargs: Any) -> Tensor:
        return called(*in_order((*args, *kwargs.values())))

    return by_kind


def _for_each(forward: Callable[..., Tensor], lane: Lane, first: int, count: int) -> Callable[..., Tensor]:
    """Experts that take equally many rows each, one expert behind the other."""

    def called(rows: Tensor) -> Tensor:
        own = lane.join(rows.reshape(count * lane.size, -1, rows.shape[-1]), 1)
        made = forward(own[first : first + count].flatten(0, 1))
        made = made.reshape(count, -1, made.shape[-1])
        all_of = torch.zeros(own.shape[0], *made.shape[1:], dtype=made.dtype, device=made.device)
        places = torch.arange(first, first + count, device=made.device)
        return lane.part(all_of.index_copy(0, places, made), 1).flatten(0, 1)

    return called


def in_order(values: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """What experts are called with: tokens, the experts chosen for each, and their weights."""
    tensors = [x for x in values if isinstance(x, Tensor)]
    chosen = [x for x in tensors if not x.is_floating_point()]
    numbers = [x for x in tensors if x.is_floating_point()]
    if len(chosen) != 1 or len(numbers) != 2 or len(tensors) != len(values):
        raise ValueError("experts are called with something else than tokens, choices and weights")
    weights = next((x for x in numbers if x.shape == chosen[0].shape), None)
    hidden = next((x for x in numbers if x is not weights), None)
    if weights is None or hidden is None or hidden.dim() != 2 or hidden.shape[0] != chosen[0].shape[0]:
        raise ValueError("the choices of the router are not a row a token")
    return hidden, chosen[0], weights
