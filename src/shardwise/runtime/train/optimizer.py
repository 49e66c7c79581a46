"""AdamW or SGD on the flat local tensors of a rank, with the gradient clipped by its norm over all ranks."""

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from shardwise.registry import closest
from shardwise.runtime.moved import moved
from shardwise.runtime.parallel.held import Local
from shardwise.runtime.parallel.world import RankWorld
from shardwise.runtime.train.adam import FEW, FlatAdam
from shardwise.runtime.train.limits import one_of, require

NAMES = ("adamw", "adam", "sgd", "sgd-m")


class OptimizerSettings(Struct, frozen=True, kw_only=True):
    name: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    decay_on: str = "all"
    """parameters that decay: all, or matrices (norms and biases do not)"""
    momentum: float = 0.9
    nesterov: bool = False
    clip: float = 1.0
    """largest gradient norm; 0: not clipped"""

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"optimizer: {self.name!r} cannot be run; {closest(self.name, list(NAMES))}")
        one_of("decay-on", self.decay_on, ("all", "matrices"))
        require((
            ("beta1", self.betas[0], 0 <= self.betas[0] < 1, "a number from 0 to below 1, such as 0.9"),
            ("beta2", self.betas[1], 0 <= self.betas[1] < 1, "a number from 0 to below 1, such as 0.95"),
            ("epsilon", self.epsilon, 0 < self.epsilon < inf, "a number above 0 such as 1e-8"),
            ("weight-decay", self.weight_decay, 0 <= self.weight_decay < inf, "0 or more, such as 0.1"),
            ("momentum", self.momentum, 0 <= self.momentum < 1, "a number from 0 to below 1, such as 0.9"),
            ("clip", self.clip, 0 <= self.clip < inf, "a number above 0 such as 1, or 0 for none"),
        ))  # fmt: skip
        if self.nesterov and (self.name != "sgd-m" or not self.momentum):
            raise ValueError(f"nesterov: {self.name} has no momentum to look ahead with; write --optimizer sgd-m")


class LocalOptimizer:
    def __init__(
        self, locals_: Sequence[Local], world: RankWorld, settings: OptimizerSettings, *, on_host: bool = False
    ) -> None:
        """`on_host`: moments lie in the host's memory and the update is made there; on the CPU that is the same."""
        self.world, self.settings, self.on_host = world, settings, on_host
        self.shown = [local.tensor for local in locals_]
        self.tensors = [tensor.cpu() if on_host else tensor for tensor in self.shown]
        self.fused = world.device.type == "cuda" and settings.name in ("adamw", "adam") and not on_host
        copies = {local.tensor: local.rounded for local in locals_ if local.rounded is not None}
        self.rounds = self.fused and len(self.tensors) <= FEW
        """the parameters' 16-bit copies are written by the step itself"""
        self.inner = _flat(self.tensors, copies, settings) if self.rounds \
            else _optimizer(self.tensors, settings, self.fused)  # fmt: skip

    def step(self, locals_: Sequence[Local], rate: float) -> float:
        norm = self.world.comm.all_reduce(squares(locals_, self.world), self.world.everyone).sqrt()
        most = self.settings.clip
        shrink = torch.clamp((norm + 1e-6) / most, min=1.0).float() if most else torch.ones_like(norm).float()
        self.apply(locals_, rate, shrink)
        return float(norm)

    def apply(self, locals_: Sequence[Local], rate: float, shrink: Tensor | None = None) -> None:
        """One update with the gradients over `shrink`."""
        shrink = torch.ones((), device=self.world.device) if shrink is None else shrink
        for tensor, shown, local in zip(self.tensors, self.shown, locals_, strict=True):
            tensor.grad = None if local.grad is None else local.grad.to(tensor.device)
            if tensor is not shown:
                tensor.copy_(shown)
        for group in self.inner.param_groups:
            group["lr"] = rate
        if isinstance(self.inner, FlatAdam):
            self.inner.shrink = shrink
        elif self.fused:
            # the kernel divides the gradients itself: no pass of its own for clipping
            self.inner.grad_scale, self.inner.found_inf = shrink, torch.zeros_like(shrink)  # type: ignore[attr-defined]
        elif (factor := 1.0 / float(shrink)) < 1:
            for tensor in self.tensors:
                if tensor.grad is not None:
                    tensor.grad.mul_(factor)
        if self.settings.decay_on == "matrices":
            self._decay_matrices(locals_, rate, shrink)
        self.inner.step()
        for tensor, shown in zip(self.tensors, self.shown, strict=True):
            tensor.grad = None
            if tensor is not shown:
                shown.copy_(tensor)

    def _decay_matrices(self, locals_: Sequence[Local], rate: float, shrink: Tensor) -> None:
        """A flat tensor holds parameters of both kinds, so decay is made here, run by run."""
        decay = self.settings.weight_decay
        for tensor, local in zip(self.tensors, locals_, strict=True):
            if tensor.grad is None:
                continue
            for span in (s for s in local.spans if len(s.held.piece.shape) > 1):
                part = slice(span.at, span.at + span.length)
                if self.settings.name == "adamw":
                    tensor[part].mul_(1.0 - rate * decay)
                else:
                    # the fused kernel divides what is added here too
                    scale = float(shrink) if self.fused else 1.0
                    tensor.grad[part].add_(tensor[part], alpha=decay * scale)

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


def squares(locals_: Sequence[Local], world: RankWorld) -> Tensor:
    """Of this rank's gradients, added up; over all ranks every element counts once, however many hold it."""
    parts, copies = [], []
    for local in locals_:
        if local.grad is None:
            continue
        for span in local.spans:
            piece = span.held.piece
            parts.append(local.grad[span.at : span.at + span.length])
            copies.append(local.copies * piece.copies * (2 if piece.tied else 1) * world.mirror.size)
    if not parts:
        return torch.zeros((), dtype=torch.float64, device=world.device)
    norms = torch.stack(torch._foreach_norm(parts, dtype=torch.float32)).double()
    return (norms.square() / moved(torch.tensor(copies, dtype=torch.float64), norms.device)).sum()


def moment_names(settings: OptimizerSettings) -> list[str]:
    """Of what an optimizer keeps for each parameter, in its shape: asked of a step on two numbers."""
    values = torch.zeros(2)
    values.grad = torch.ones(2)
    optimizer = _optimizer([values], settings, fused=False)
    optimizer.step()
    return [name for name, value in optimizer.state[values].items() if value is not None and value.shape == (2,)]


def _flat(tensors: list[Tensor], copies: dict[Tensor, Tensor], settings: OptimizerSettings) -> FlatAdam:
    decay = settings.weight_decay if settings.decay_on == "all" else 0.0
    return FlatAdam(
        tensors, copies, decoupled=settings.name == "adamw", lr=0.0, betas=settings.betas, eps=settings.epsilon,
        weight_decay=decay,
    )  # fmt: skip


def _optimizer(tensors: list[Tensor], settings: OptimizerSettings, fused: bool) -> torch.optim.Optimizer:
    decay = settings.weight_decay if settings.decay_on == "all" else 0.0
    options: dict[str, Any] = {"lr": 0.0, "weight_decay": decay, "fused" if fused else "foreach": True}
    if settings.name in ("adamw", "adam"):
        build = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
        return build(tensors, betas=settings.betas, eps=settings.epsilon, **options)
    momentum = settings.momentum if settings.name == "sgd-m" else 0.0
    return torch.optim.SGD(tensors, momentum=momentum, nesterov=settings.nesterov, **options)
