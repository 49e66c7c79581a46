"""Norms over features that ranks share: found by what they compute, made of each rank's part and a sum."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.run.auto.lanes import Lane
from shardwise.run.auto.plan import NormCut
from shardwise.run.auto.wide import Widened

CLOSE = 1e-9


def normed(
    x: Tensor, weight: Tensor, bias: Tensor | None, cut: NormCut, total: Callable[[Tensor], Tensor],
    gate: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """As the norm of all features gives it; `total` sums over those who hold them."""
    wide = x if x.dtype is torch.float64 else x.float()
    opened = None if gate is None else torch.nn.functional.silu(gate.to(wide.dtype))
    if opened is not None and cut.gate == "before":
        wide = wide * opened
    if cut.centred:
        wide = wide - total(wide.sum(-1, keepdim=True)) / cut.width
    square = total(wide.square().sum(-1, keepdim=True)) / cut.width
    found = wide * torch.rsqrt(square + cut.epsilon) * (1 + weight if cut.from_one else weight)
    found = found if bias is None else found + bias
    return (found * opened if opened is not None and cut.gate == "after" else found).to(x.dtype)


def span_ranks(norm: nn.Module, cut: NormCut, lane: Lane) -> None:
    """The module norms this rank's features as part of all."""
    held: Any = norm

    def forward(x: Tensor, gate: Tensor | None = None) -> Tensor:
        return normed(x, held.weight, getattr(held, "bias", None), cut, lane.total, gate)

    norm.forward = forward


def as_norm(
    module: nn.Module, name: str, indices: tuple[tuple[int, ...], ...], *, gated: bool = False
) -> NormCut | None:
    """What the module computes, tried on numbers; None where it is none of the norms known here. `gated`: it is called
    with a second tensor."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 1:
        return None
    width = weight.shape[0]
    generator = torch.Generator().manual_seed(3)
    x, *gate = (torch.randn(4, width, generator=generator, dtype=weight.dtype) for _ in range(1 + gated))
    with torch.no_grad(), Widened():
        wanted = module(x, *gate)
        for cut in _forms(module, name, indices, width, gates=("before", "after") if gated else ("",)):
            found = normed(x, weight, getattr(module, "bias", None), cut, lambda part: part, *gate)
            if wanted.shape == found.shape and float((found - wanted).norm()) <= CLOSE * float(wanted.norm()):
                return cut
    return None


def _forms(
    module: nn.Module, name: str, indices: tuple[tuple[int, ...], ...], width: int, gates: tuple[str, ...]
) -> Iterator[NormCut]:
    small = {value for value in vars(module).values() if isinstance(value, float) and 0.0 <= value < 0.1}
    forms = product(sorted(small | {torch.finfo(torch.float64).eps}), (False, True), (False, True), gates)
    for epsilon, centred, from_one, gate in forms:
        yield NormCut(module=name, indices=indices, width=width, epsilon=epsilon, centred=centred, from_one=from_one,
                      gate=gate)  # fmt: skip


def may_span(module: nn.Module) -> bool:
    """A module without parts of its own whose weights are one number a feature."""
    own = list(module.parameters(recurse=False))
    return bool(own) and not list(module.children()) and all(p.dim() == 1 for p in own)
