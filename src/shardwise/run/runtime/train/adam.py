"""Adam and AdamW over few large flat tensors on a GPU: one compiled pass divides the gradient, moves both moments and
the values, and writes their 16-bit copies. torch's fused kernel needs a pass more for the copies and writes the divided
gradients back."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from shardwise.run.runtime.fused import fused
from shardwise.run.runtime.moved import moved

PIECE = 1 << 26
"""elements of one kernel: its indices stay within 32 bits"""
FEW = 8
"""more tensors than these are better served by torch's kernel for many"""


def _chain(
    value: Tensor, copy: Tensor | None, grad: Tensor, mean: Tensor, square: Tensor, numbers: Tensor, decoupled: bool
) -> None:
    shrink, rate, decay, beta1, beta2, first, second, epsilon = numbers.unbind()
    wide, g = value.float(), grad.float() / shrink
    if not decoupled:
        g = g + decay * wide
    m = mean.float() + (1.0 - beta1) * (g - mean.float())
    s = beta2 * square.float() + (1.0 - beta2) * g * g
    kept = wide * (1.0 - rate * decay) if decoupled else wide
    new = kept - rate * (m / first) / (torch.sqrt(s / second) + epsilon)
    mean.copy_(m)
    square.copy_(s)
    value.copy_(new)
    if copy is not None:
        copy.copy_(new)


_piece = fused()(_chain)
_rest = fused(varies=True)(_chain)


class FlatAdam(torch.optim.Optimizer):
    def __init__(
        self, tensors: Iterable[Tensor], copies: dict[Tensor, Tensor], *, decoupled: bool, **options: Any
    ) -> None:
        super().__init__(list(tensors), options)
        self.copies, self.decoupled = copies, decoupled
        self.shrink = torch.ones(())
        """what gradients are divided by: how far their norm is above its limit"""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    self._update(tensor, group)

    def _update(self, tensor: Tensor, group: dict[str, Any]) -> None:
        state = self.state[tensor]
        if not state:
            state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(tensor), exp_avg_sq=torch.zeros_like(tensor))
        state["step"] += 1
        done, (beta1, beta2) = float(state["step"]), group["betas"]
        facts = [group["lr"], group["weight_decay"], beta1, beta2, 1 - beta1**done, 1 - beta2**done, group["eps"]]
        numbers = torch.cat([self.shrink.view(1).to(tensor.device), moved(torch.tensor(facts), tensor.device)])
        copy = self.copies.get(tensor)
        assert tensor.grad is not None
        columns = (tensor, tensor.grad, state["exp_avg"], state["exp_avg_sq"])
        for first in range(0, len(tensor), PIECE):
            value, grad, mean, square = (column[first : first + PIECE] for column in columns)
            copied = None if copy is None else copy[first : first + PIECE]
            run = _piece if first + PIECE <= len(tensor) else _rest
            run(value, copied, grad, mean, square, numbers, self.decoupled)
