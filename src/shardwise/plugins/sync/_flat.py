"""Parameters <-> one fp32 row of all of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def read(parameters: Sequence[Tensor], *, gradients: bool = False) -> Tensor:
    """(1, d); a parameter without gradient counts as zero."""
    with torch.no_grad():
        parts = [p.detach() if not gradients else torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        return torch.cat([part.reshape(-1).float() for part in parts])[None]


def write(parameters: Sequence[Tensor], row: Tensor, *, gradients: bool = False) -> None:
    """Into the same tensors, so that the optimizer's references stay."""
    with torch.no_grad():
        start = 0
        for p in parameters:
            piece = row[start : start + p.numel()].view(p.shape)
            start += p.numel()
            if not gradients:
                p.copy_(piece)
            elif p.grad is None:
                p.grad = piece.to(p.dtype).clone()
            else:
                p.grad.copy_(piece)


def rates_of(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], *, worker_axis: bool = False) -> Any:
    """The learning rate: a float where all groups agree, else (1, d)."""
    rates = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
    found = {rates[id(p)] for p in parameters}
    if len(found) == 1:
        return found.pop()
    sizes = [p[0].numel() if worker_axis else p.numel() for p in parameters]
    pieces = [torch.full((size,), rates[id(p)], device=p.device) for p, size in zip(parameters, sizes, strict=True)]
    return torch.cat(pieces)[None]
