"""Norms over features that ranks share: found by what they compute, made of each rank's part and a sum."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.run.auto.lanes import Lane
from shardwise.run.auto.plan import NormCut
from shardwise.run.auto.wide import Widened

CLOSE = 1e-9


def normed(x: Tensor, weight: Tensor, bias: Tensor | None, cut: NormCut, total: Callable[[Tensor], Tensor]) -> Tensor:
    """As the norm of all features gives it; `total` sums over those who hold them."""
    wide = x if x.dtype is torch.float64 else x.float()
    if cut.centred:
        wide = wide - total(wide.sum(-1, keepdim=True)) / cut.width
    square = total(wide.square().sum(-1, keepdim=True)) / cut.width
    found = wide * torch.rsqrt(square + cut.epsilon) * (1 + weight if cut.from_one else weight)
    return (found if bias is None else found + bias).to(x.dtype)


def span_ranks(norm: nn.Module, cut: NormCut, lane: Lane) -> None:
    """The module norms this rank's features as part of all."""
    held: Any = norm

    def forward(x: Tensor) -> Tensor:
        return normed(x, held.weight, getattr(held, "bias", None), cut, lane.total)

    norm.forward = forward


def as_norm(module: nn.Module, name: str, indices: tuple[tuple[int, ...], ...]) -> NormCut | None:
    """What the module computes, tried on numbers; None where it is none of the norms known here."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 1:
        return None
    width = weight.shape[0]
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(3), dtype=weight.dtype)
    with torch.no_grad(), Widened():
        wanted = module(x)
        for cut in _forms(module, name, indices, width):
            found = normed(x, weight, getattr(module, "bias", None), cut, lambda part: part)
            if wanted.shape == found.shape and float((found - wanted).norm()) <= CLOSE * float(wanted.norm()):
                return cut
    return None


def _forms(module: nn.Module, name: str, indices: tuple[tuple[int, ...], ...], width: int) -> Iterator[NormCut]:
    small = {value for value in vars(module).values() if isinstance(value, float) and 0.0 <= value < 0.1}
    for epsilon in sorted(small | {torch.finfo(torch.float64).eps}):
        for centred in (False, True):
            for from_one in (False, True):
                yield NormCut(module=name, indices=indices, width=width, epsilon=epsilon, centred=centred,
                              from_one=from_one)  # fmt: skip


def may_span(module: nn.Module) -> bool:
    """A module without parts of its own whose weights are one number a feature."""
    own = list(module.parameters(recurse=False))
    return bool(own) and not list(module.children()) and all(p.dim() == 1 for p in own)
