"""Directions of whole matrices and updates by element, on torch: imported only where an optimizer runs.

Products run in `product_dtype` of the rule, which for fp32 torch itself would not do; matrices in fp64 stay so, so that
layouts can be compared to rounding.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""of Newton-Schulz, as torch.optim.Muon has them"""
TINY = 1e-7
"""the least norm that a matrix is divided by"""
DAMPING = 1e-12
"""of Shampoo's factors"""


def orthogonalized(matrix: Tensor, steps: int) -> Tensor:
    """In 16 bits, as torch.optim.Muon does it, unless the matrix is in fp64."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix if matrix.dtype == torch.float64 else matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=TINY)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def adams(grad: Tensor, state: dict[str, Tensor], step: int, betas: tuple[float, float], epsilon: float) -> Tensor:
    """Adam's direction; both moments move."""
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.lerp_(grad, 1.0 - betas[0])
    square.mul_(betas[1]).addcmul_(grad, grad, value=1.0 - betas[1])
    return (mean / (1.0 - betas[0] ** step)) / ((square / (1.0 - betas[1] ** step)).sqrt() + epsilon)


@contextmanager
def tf32_products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@tf32_products()
def soap(
    grad: Tensor, state: dict[str, Tensor], step: int, every: int, betas: tuple[float, float], epsilon: float
) -> Tensor:
    """Adam between two projections. Bases are the identity for `every` steps, then eigenvectors, then one step of
    power iteration and QR each time."""
    sides = [(axis, name) for axis, name in enumerate(("row", "column")) if f"{name}_factor" in state]

    def turned(x: Tensor, *, back: bool) -> Tensor:
        for axis, name in sides:
            basis = state[f"{name}_basis"]
            basis = basis.T if back else basis
            x = basis.T @ x if axis == 0 else x @ basis
        return x

    direction = turned(adams(turned(grad, back=False), state, step, betas, epsilon), back=True)
    for axis, name in sides:
        state[f"{name}_factor"].lerp_(grad @ grad.T if axis == 0 else grad.T @ grad, 1.0 - betas[1])
    if step % every == 0:
        mean = turned(state["exp_avg"], back=True)
        for axis, name in sides:
            _renew(state, axis, name, first=step == every)
        state["exp_avg"].copy_(turned(mean, back=False))
    return direction


def _renew(state: dict[str, Tensor], axis: int, name: str, *, first: bool) -> None:
    """A new basis of one side. Squares are carried over by squared entries the first time, then by their order."""
    factor, basis, square = state[f"{name}_factor"], state[f"{name}_basis"], state["exp_avg_sq"]
    if first:
        vectors = torch.linalg.eigh(factor).eigenvectors.flip(-1)
        share = vectors.square()
        square.copy_(share.T @ square if axis == 0 else square @ share)
        basis.copy_(vectors)
        return
    order = (basis * (factor @ basis)).sum(0).argsort(descending=True)
    square.copy_(square.index_select(axis, order))
    basis.copy_(torch.linalg.qr(factor @ basis[:, order]).Q)


@tf32_products()
def shampoo(
    grad: Tensor, state: dict[str, Tensor], step: int, every: int, block: int, betas: tuple[float, float],
    epsilon: float,
) -> Tensor:  # fmt: skip
    """Adam's for `every` steps; then the first moment between fourth roots, block by block, as long as Adam's."""
    direction, mean = adams(grad, state, step, betas, epsilon), state["exp_avg"]
    for rows, columns, kept in _blocks(state, grad.shape, block):
        part, (left, right) = grad[rows, columns], kept["factor"]
        left.lerp_(part @ part.T, 1.0 - betas[1])
        right.lerp_(part.T @ part, 1.0 - betas[1])
        if step % every == 0:
            for factor, root in zip(kept["factor"], kept["root"], strict=True):
                values, vectors = torch.linalg.eigh(factor / (1.0 - betas[1] ** step))
                root.copy_(vectors * (values.clamp(min=0.0) + DAMPING) ** -0.25 @ vectors.T)
        if step >= every:
            found = kept["root"][0] @ mean[rows, columns] @ kept["root"][1]
            own = direction[rows, columns]
            own.copy_(found * (own.norm() / found.norm().clamp(min=TINY)))
    return direction


def _blocks(
    state: dict[str, Tensor], shape: Iterable[int], block: int
) -> Iterator[tuple[slice, slice, dict[str, tuple[Tensor, Tensor]]]]:
    """(rows, columns, both factors and both roots) of every block."""
    height, width = shape
    at = [0, 0]
    for top in range(0, height, block):
        for left in range(0, width, block):
            sides = min(block, height - top), min(block, width - left)
            kept = {
                kind: (
                    state[f"row_{kind}"][at[0] : at[0] + sides[0] ** 2].view(sides[0], sides[0]),
                    state[f"column_{kind}"][at[1] : at[1] + sides[1] ** 2].view(sides[1], sides[1]),
                )
                for kind in ("factor", "root")
            }
            yield slice(top, top + sides[0]), slice(left, left + sides[1]), kept
            at = [at[0] + sides[0] ** 2, at[1] + sides[1] ** 2]


class ByElement(Optimizer):
    """An update that looks at each element alone: `moves` changes a tensor by its gradient and its state."""

    def __init__(
        self, tensors: list[Tensor], moves: Callable[[Tensor, Tensor, dict[str, Any], float], None],
        weight_decay: float,
    ) -> None:  # fmt: skip
        super().__init__(tensors, {"lr": 0.0, "weight_decay": weight_decay})
        self.moves = moves

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    tensor.mul_(1.0 - group["lr"] * group["weight_decay"])
                    self.moves(tensor, tensor.grad, self.state[tensor], group["lr"])


def lion(tensors: list[Tensor], betas: tuple[float, float], weight_decay: float) -> Optimizer:
    def moves(tensor: Tensor, grad: Tensor, state: dict[str, Any], rate: float) -> None:
        mean = state.setdefault("exp_avg", torch.zeros_like(tensor))
        tensor.add_(mean.lerp(grad, 1.0 - betas[0]).sign_(), alpha=-rate)
        mean.lerp_(grad, 1.0 - betas[1])

    return ByElement(tensors, moves, weight_decay)
