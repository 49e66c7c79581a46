"""Least squares spread over n workers: the problem most of these results can be seen on in seconds.

Worker i holds f_i(x) = |A_i x - b_i|^2 / 2 rows, its minimum moved away from the others' by `spread`; its gradient
comes with normal noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shardwise.plugins.sync._simulate import descend
from shardwise.plugins.sync._strategy import Strategy


@dataclass(frozen=True)
class LeastSquares:
    curve: Tensor
    """(n, d, d)"""
    slope: Tensor
    """(n, d)"""
    best: Tensor
    """(d): the minimum of the mean"""
    noise: float
    seed: int

    @classmethod
    def of(cls, n: int, d: int, *, spread: float, noise: float, seed: int = 0) -> "LeastSquares":
        draw = torch.Generator().manual_seed(seed)
        rows = 2 * d
        a = torch.randn(n if spread else 1, rows, d, generator=draw) / rows**0.5
        middle = torch.randn(d, generator=draw) + spread * torch.randn(n if spread else 1, d, generator=draw)
        curve = a.transpose(1, 2) @ a
        slope = (curve @ middle[..., None])[..., 0]
        best = torch.linalg.solve(curve.double().mean(dim=0), slope.double().mean(dim=0)).float()
        return cls(curve.expand(n, d, d), slope.expand(n, d), best, noise, seed)

    def gradients(self) -> Callable[[Tensor, int], Tensor]:
        """The same noise for every strategy that asks."""
        draw = torch.Generator().manual_seed(self.seed + 1)
        return lambda x, _: (
            torch.bmm(self.curve, x[..., None])[..., 0]
            - self.slope
            + (self.noise * torch.randn(x.shape, generator=draw) if self.noise else 0.0)
        )

    def error(self, x: Tensor) -> float:
        """Mean squared distance of the workers to the minimum."""
        return float(((x - self.best) ** 2).sum(dim=1).mean())


def errors(
    problem: LeastSquares, strategy: Strategy, *, steps: int, lr: float | Callable[[int], float],
    of_mean: bool = False, first: int = 0, seed: int = 0,
) -> list[float]:  # fmt: skip
    """The error after each step from `first` on; of_mean: of the mean model."""
    found: list[float] = []

    def watch(x: Tensor, t: int) -> None:
        if t >= first:
            found.append(problem.error(x.mean(dim=0, keepdim=True) if of_mean else x))

    start = torch.zeros(problem.slope.shape)
    descend(strategy, start, problem.gradients(), steps=steps, lr=lr, watch=watch, seed=seed)
    return found


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
