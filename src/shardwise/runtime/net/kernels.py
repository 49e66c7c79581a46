"""Operations that keep for the backward pass what a fused kernel keeps, and no more."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.runtime.net.marks import kept_as
from shardwise.runtime.parallel.comm import Comm
from shardwise.runtime.parallel.op import Op
from shardwise.spec.model import Model


class RmsNorm(Op):
    """Keeps its input and one number per token."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = x.float()
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, inverse)
        return (wide * inverse * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        scaled, unit = grad.float() * weight, x.float() * inverse
        into = inverse * (scaled - unit * (scaled * unit).mean(-1, keepdim=True))
        return into.to(x.dtype), (grad * unit).flatten(0, -2).sum(0).to(weight.dtype), None


class Gated(Op):
    """silu(gate) * up, times one number per row where given; keeps its inputs only."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, scale: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, scale)
        y = F.silu(gate) * up
        return y if scale is None else (y * scale).to(gate.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        gate, up, scale = ctx.saved_tensors
        sigmoid = torch.sigmoid(gate)
        inner = grad if scale is None else (grad * scale).to(grad.dtype)
        by_scale = None if scale is None else (grad * gate * sigmoid * up).sum(-1, keepdim=True).to(scale.dtype)
        return inner * up * sigmoid * (1 + gate * (1 - sigmoid)), inner * gate * sigmoid, by_scale


class Recompute(Op):
    """Keeps a layer's input; the backward runs the layer's forward again, its messages included."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Callable[[Tensor], Tensor], comm: Comm) -> Tensor:
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


class Attached(Op):
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


class Rotated(Op):
    """Rotary positions on [sequence, batch, heads, width]; the backward turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        ctx.theta = theta
        ctx.save_for_backward(positions)
        return _turned(x, positions, 1.0, theta)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (positions,) = ctx.saved_tensors
        return _turned(grad, positions, -1.0, ctx.theta), None, None


def _turned(x: Tensor, positions: Tensor, way: float, theta: float) -> Tensor:
    width = x.shape[-1]
    rates = theta ** (torch.arange(0, width, 2, device=x.device).float() / width)
    angles = (positions.float().unsqueeze(1) / rates).repeat(1, 2).view(len(positions), 1, 1, width) * way
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos().to(x.dtype) + torch.cat([-second, first], dim=-1) * angles.sin().to(x.dtype)


def rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """The two halves of a head turn against each other, as Hugging Face's Llama has it."""
    y: Tensor = Rotated.apply(x, positions, theta)
    return y
