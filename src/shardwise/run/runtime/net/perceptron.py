"""A perceptron of the planner's shapes: features in, hidden layers, classes out, a ReLU between all of them.

A part applies the ReLU to what it is given, not to what it gives: between two stages nothing is kept twice.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.run.runtime.net.context import Context
from shardwise.run.runtime.net.kernels import RecomputeOp
from shardwise.run.runtime.net.part import ModulePart
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.parallel.products import Cut, entering, leaving
from shardwise.spec.arch.tensors import embedding_tensors, layer_tensors


class JoinWidth(AutogradOp):
    """Ranks' shares of the width as one; every rank gets the whole gradient and takes its share of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut) -> Tensor:
        ctx.cut = cut
        return torch.cat(cut.comm.gathered(x, cut.tp).chunk(cut.tp.size), dim=-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.chunk(ctx.cut.tp.size, dim=-1)[ctx.cut.tp.index].contiguous(), None


class Features(ModulePart):
    def __init__(self, context: Context) -> None:
        super().__init__(embedding_tensors(context.model), "embedding.", context)

    def forward(self, features: Tensor) -> Tensor:
        """[1, batch, features] -> [1, batch, width]"""
        weight, bias = self.pair("input")
        x = F.linear(features, weight)
        # added by itself: with a bias in the product FSDP would be given a view, which it warns of
        x = x if bias is None else x + bias
        return JoinWidth.apply(x, self.context.cut) if self.context.cut.tp.size > 1 else x


class HiddenLayer(ModulePart):
    """Two products: to the layer's own width and back."""

    def __init__(self, context: Context, index: int, recompute: str) -> None:
        super().__init__(layer_tensors(context.model, context.model.pattern[index]), f"layers.{index}.", context)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute == "full":
            y: Tensor = RecomputeOp.apply(x, self.compute, self.context.world.comm)
            return y
        return self.compute(x)

    def compute(self, x: Tensor) -> Tensor:
        cut = self.context.cut
        (up,) = entering(F.relu(x), cut, self.product("up"))
        return leaving(F.relu(up), cut, self.product("down"))
