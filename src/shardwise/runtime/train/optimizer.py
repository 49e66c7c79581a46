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
    def __init__(
        self, locals_: Sequence[Local], world: World, settings: OptimizerSettings, *, on_host: bool = False
    ) -> None:
        """`on_host`: moments lie in the host's memory and the update is made there; on the CPU that is the same."""
        self.world, self.settings, self.on_host = world, settings, on_host
        self.shown = [local.tensor for local in locals_]
        self.tensors = [tensor.cpu() if on_host else tensor for tensor in self.shown]
        self.inner = _optimizer(self.tensors, settings)

    def step(self, locals_: Sequence[Local], rate: float) -> float:
        norm = self._norm(locals_)
        most = self.settings.clip
        factor = min(most / (norm + 1e-6), 1.0) if most else 1.0
        for tensor, shown, local in zip(self.tensors, self.shown, locals_, strict=True):
            if local.grad is not None:
                grad = local.grad.mul_(factor) if factor < 1 else local.grad
                tensor.grad = grad.to(tensor.device)
            if tensor is not shown:
                tensor.copy_(shown)
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()
        for tensor, shown in zip(self.tensors, self.shown, strict=True):
            tensor.grad = None
            if tensor is not shown:
                shown.copy_(tensor)
        return norm

    def _norm(self, locals_: Sequence[Local]) -> float:
        """Every element counts once, however many ranks hold it."""
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for local in locals_:
            if local.grad is None:
                continue
            for span in local.spans:
                piece = span.held.piece
                copies = local.copies * piece.copies * (2 if piece.tied else 1) * self.world.mirror.size
                part = local.grad[span.at : span.at + span.length]
                total += part.double().square().sum() / copies
        self.world.comm.all_reduce(total, self.world.everyone)
        return float(total.sqrt())

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


def moment_names(settings: OptimizerSettings) -> list[str]:
    """Of what an optimizer keeps for each parameter, in its shape: asked of a step on two numbers."""
    values = torch.zeros(2)
    values.grad = torch.ones(2)
    optimizer = _optimizer([values], settings)
    optimizer.step()
    return [name for name, value in optimizer.state[values].items() if value is not None and value.shape == (2,)]


def _optimizer(tensors: list[Tensor], settings: OptimizerSettings) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": 0.0, "weight_decay": settings.weight_decay, "foreach": True}
    if settings.name in ("adamw", "adam"):
        build = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
        return build(tensors, betas=settings.betas, **options)
    return torch.optim.SGD(tensors, momentum=settings.momentum if settings.name == "sgd-m" else 0.0, **options)
