"""AdamW or SGD on the flat local tensors of a rank, with the gradient clipped by its norm over all ranks."""

from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from shardwise.registry import closest
from shardwise.runtime.parallel.held import Local
from shardwise.runtime.parallel.world import World

NAMES = ("adamw", "adam", "sgd", "sgd-m")


class OptimizerSettings(Struct, frozen=True, kw_only=True):
    name: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    """on every parameter"""
    momentum: float = 0.9
    clip: float = 1.0
    """largest gradient norm; 0: not clipped"""

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"optimizer: {self.name!r} cannot be run; {closest(self.name, list(NAMES))}")


class LocalOptimizer:
    def __init__(self, locals_: Sequence[Local], world: World, settings: OptimizerSettings) -> None:
        self.world, self.settings = world, settings
        self.tensors = [local.tensor for local in locals_]
        self.inner = _optimizer(self.tensors, settings)

    def step(self, locals_: Sequence[Local], rate: float) -> float:
        norm = float(self.world.comm.all_reduce(squares(locals_, self.world), self.world.everyone).sqrt())
        most = self.settings.clip
        self.apply(locals_, rate, min(most / (norm + 1e-6), 1.0) if most else 1.0)
        return norm

    def apply(self, locals_: Sequence[Local], rate: float, factor: float = 1.0) -> None:
        """One update with the gradients times `factor`."""
        for tensor, local in zip(self.tensors, locals_, strict=True):
            if local.grad is not None:
                tensor.grad = local.grad.mul_(factor) if factor < 1 else local.grad
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()
        for tensor in self.tensors:
            tensor.grad = None

    def ensure_states(self) -> None:
        """Moments exist, zero where no step was made yet: a step of rate 0 on zero gradients."""
        if all(self.inner.state[t] for t in self.tensors) or self.settings.name == "sgd":
            return
        decay = [group["weight_decay"] for group in self.inner.param_groups]
        for tensor in self.tensors:
            tensor.grad = torch.zeros_like(tensor)
        for group in self.inner.param_groups:
            group.update(lr=0.0, weight_decay=0.0)
        self.inner.step()
        for group, value in zip(self.inner.param_groups, decay, strict=True):
            group["weight_decay"] = value
        for tensor in self.tensors:
            tensor.grad = None

    def set_steps(self, steps: int) -> None:
        """How many updates the moments have seen."""
        for tensor in self.tensors:
            if "step" in self.inner.state[tensor]:
                self.inner.state[tensor]["step"].fill_(float(steps))

    def states(self) -> list[dict[str, Tensor]]:
        """Moments by name for each local tensor, empty before the first step."""
        return [
            {name: value for name, value in self.inner.state[t].items() if value is not None and value.shape == t.shape}
            for t in self.tensors
        ]


def squares(locals_: Sequence[Local], world: World) -> Tensor:
    """Of this rank's gradients, added up; over all ranks every element counts once, however many hold it."""
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for local in locals_:
        if local.grad is None:
            continue
        for span in local.spans:
            piece = span.held.piece
            copies = local.copies * (world.tp.size if not piece.cuts and not piece.expert else 1)
            copies *= 2 if piece.tied else 1
            part = local.grad[span.at : span.at + span.length]
            total += part.double().square().sum() / copies
    return total


def _optimizer(tensors: list[Tensor], settings: OptimizerSettings) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": 0.0, "weight_decay": settings.weight_decay, "foreach": True}
    if settings.name in ("adamw", "adam"):
        build = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
        return build(tensors, betas=settings.betas, **options)
    return torch.optim.SGD(tensors, momentum=settings.momentum if settings.name == "sgd-m" else 0.0, **options)
