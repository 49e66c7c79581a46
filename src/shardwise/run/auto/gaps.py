"""How far gradients of ranks are from those of one process, and how far rounding alone moves them."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor
from torch.utils._pytree import tree_map

from shardwise.run.auto.draws import draws_begin
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.truth import Truth
from shardwise.run.auto.watch import before_update, losses_of, samples_of
from shardwise.run.auto.wide import comparable

TOLERANCES = {"float64": 1e-9, "float32": 1e-5}
FLOORS = {"float64": 1e-6, "float32": 1e-2}
"""gradients (and buffers) below this share of all of them are compared with it: a bias that softmax cancels has only
rounding in it"""
ROUNDED = 10.0
"""times what rounding moves in one process may ranks be apart"""
MOST = {"float64": 1e-6, "float32": 1e-4}
"""beyond this rounding is no excuse"""


class Apart(Struct, frozen=True):
    """One rank's part of a gradient: the sum of squared differences, and of how many numbers."""

    squares: float
    numbers: float


def counted(gap: float) -> float:
    """What is not a number is the largest gap of all: comparisons and maxima must not pass over it."""
    return gap if gap < math.inf else math.inf


def gradient_gaps(
    ranks: list[dict[str, Apart]], truth: dict[str, Tensor | None], trained: Mapping[str, int], floor: float
) -> dict[str, float]:
    """Of one step, relative, by parameter. A number that several ranks hold counts as often; a parameter of which some
    numbers were on no rank is not compared."""
    norms = {name: 0.0 if gradient is None else float(gradient.norm()) for name, gradient in truth.items()}
    least = max(floor * max(norms.values(), default=0.0), 1e-300)
    found = {}
    for name, count in trained.items():
        parts = [rank[name] for rank in ranks if name in rank]
        if sum(part.numbers for part in parts) >= count:
            found[name] = counted(math.sqrt(sum(part.squares for part in parts)) / max(norms[name], least))
    return found


def tolerance_of(program: UserProgram, truth: Truth, gap: float) -> float:
    """What a gap is judged by: larger than usual only where the same program in one process, with weights changed in
    their last digit and samples in the other order, is as far from itself."""
    usual, most = TOLERANCES[program.dtype], MOST[program.dtype]
    if not usual < gap <= most:
        return usual
    return max(usual, min(ROUNDED * _rounding(program, truth), most))


def _rounding(program: UserProgram, truth: Truth) -> float:
    own = program.copy()
    steps: list[dict[str, Apart]] = []
    losses: list[float] = []
    trained = {name: p.numel() for name, p in own.model.named_parameters() if p.requires_grad}
    generator = torch.Generator().manual_seed(0)
    for parameter in own.model.parameters():
        up = torch.rand(parameter.shape, generator=generator) < 0.5
        parameter.data = torch.nextafter(parameter.data, torch.where(up, math.inf, -math.inf).to(parameter))

    def look() -> None:
        seen = {}
        for name, parameter in own.model.named_parameters():
            wanted, found = truth.gradients[len(steps)][name], parameter.grad
            if wanted is not None and found is not None:
                seen[name] = Apart(float((found - wanted).square().sum()), found.numel())
        steps.append(seen)

    with draws_begin(), comparable(wide=own.dtype == "float64"), before_update(look):
        for batch in own.batches[:-1]:
            with losses_of() as made:
                own.step(*own.parts, batch if truth.draws else _turned(batch))
            losses.append(sum(made))
    worst = [abs(a - b) / max(abs(b), 1e-30) for a, b in zip(losses, truth.losses, strict=True)]
    floor = FLOORS[program.dtype]
    for number, seen in enumerate(steps):
        worst += gradient_gaps([seen], truth.gradients[number], trained, floor).values()
    return counted(max(worst, default=0.0))


def _turned(batch: Any) -> Any:
    samples = samples_of(batch)

    def turned(x: Any) -> Any:
        return x.flip(0) if isinstance(x, Tensor) and x.dim() and x.shape[0] == samples else x

    return tree_map(turned, batch)
