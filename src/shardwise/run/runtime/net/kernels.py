"""Operations that keep for the backward pass what a fused kernel keeps, and no more."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.run.runtime.fused import fused
from shardwise.run.runtime.net.marks import kept_as
from shardwise.run.runtime.parallel.comm import RankComm
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.widened import widened
from shardwise.spec.model import Model

Turns = tuple[Tensor, Tensor]


@fused()
def _normed(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    wide = widened(x)
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * inverse * weight).to(x.dtype), inverse


@fused()
def _norm_gradients(grad: Tensor, x: Tensor, weight: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    scaled, unit = widened(grad) * weight, widened(x) * inverse
    into = inverse * (scaled - unit * (scaled * unit).mean(-1, keepdim=True))
    return into.to(x.dtype), (grad * unit).flatten(0, -2).sum(0).to(weight.dtype)


class RmsNorm(AutogradOp):
    """Keeps its input and one number per token."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        y, inverse = _normed(x, weight, epsilon)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return *_norm_gradients(grad, *ctx.saved_tensors), None


@fused()
def _gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


@fused()
def _gated_gradients(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    sigmoid = torch.sigmoid(gate)
    return grad * up * sigmoid * (1 + gate * (1 - sigmoid)), grad * gate * sigmoid


@fused(varies=True)
def _gated_rows(gate: Tensor, up: Tensor, scale: Tensor) -> Tensor:
    return (F.silu(gate) * up * scale).to(gate.dtype)


@fused(varies=True)
def _gated_rows_gradients(grad: Tensor, gate: Tensor, up: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sigmoid, inner = torch.sigmoid(gate), (grad * scale).to(grad.dtype)
    by_scale = (grad * gate * sigmoid * up).sum(-1, keepdim=True).to(scale.dtype)
    return inner * up * sigmoid * (1 + gate * (1 - sigmoid)), inner * gate * sigmoid, by_scale


class GatedActivation(AutogradOp):
    """silu(gate) * up, times one number per row where given; keeps its inputs only."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, scale: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, scale)
        return _gated(gate, up) if scale is None else _gated_rows(gate, up, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        gate, up, scale = ctx.saved_tensors
        if scale is None:
            return *_gated_gradients(grad, gate, up), None
        return _gated_rows_gradients(grad, gate, up, scale)


class RecomputeOp(AutogradOp):
    """Keeps a layer's input; the backward runs the layer's forward again, its messages included."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Callable[[Tensor], Tensor], comm: RankComm) -> Tensor:
        ctx.run, ctx.comm = run, comm
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        (x,) = ctx.saved_tensors
        again = x.detach().requires_grad_()
        with torch.enable_grad(), ctx.comm.during("recompute"), kept_as("working"):
            y = ctx.run(again)
        torch.autograd.backward(y, grad)
        return again.grad, None, None


class AttachLoss(AutogradOp):
    """`x` unchanged; its backward also starts that of `loss`, which no other loss is added to (balance of experts)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = ctx.saved_tensors
        return grad, torch.ones_like(loss)


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, model: Model) -> Tensor:
    if model.norm == "rms":
        y: Tensor = RmsNorm.apply(x, weight, model.norm_epsilon)
        return y
    return F.layer_norm(x, weight.shape, weight, bias, model.norm_epsilon)


class Rotation(AutogradOp):
    """Rotary positions on [sequence, batch, heads, width]; the backward turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, turns: Turns) -> Tensor:
        ctx.turns = turns
        return _turned(x, *turns)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        cos, sin = ctx.turns
        return _turned(grad, cos, -sin), None


@fused()
def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@lru_cache(maxsize=8)
def turns_at(positions: Tensor, width: int, theta: float) -> Turns:
    """(cosines, sines) by place and half the width of a head."""
    dtype = torch.get_default_dtype()
    rates = theta ** (torch.arange(0, width, 2, device=positions.device, dtype=dtype) / width)
    angles = (positions.to(dtype).unsqueeze(1) / rates).view(len(positions), 1, 1, width // 2)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, turns: Turns) -> Tensor:
    """The two halves of a head turn against each other, as Hugging Face's Llama has it."""
    y: Tensor = Rotation.apply(x, turns)
    return y
