"""A backward in two halves, as zero-bubble schedules order it: gradients of the input first, of weights when there is
time. The graph is cut where torch's own pipelines cut it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight


@dataclass
class Owed:
    """What the second half starts from."""

    groups: list[dict[str, Any]]
    """weights, and the gradients in front of them"""
    out: Tensor | None = None
    """of a stage without an input, and its gradient: nobody waits, so all of it is put off"""
    grad: Tensor | None = None


def input_half(model: nn.Module, out: Tensor, grad: Tensor | None, into: Tensor | None) -> Owed:
    """The gradient of `into` is in it afterwards."""
    if into is None:
        return Owed([], out, grad)
    _, groups = stage_backward_input([out], None if grad is None else [grad], [into], iter(_learning(model)))
    return Owed(groups)


def weight_half(model: nn.Module, owed: Owed) -> None:
    if owed.out is not None:
        torch.autograd.backward(owed.out, owed.grad)
    else:
        # what all blocks are given, a condition, lies behind the weights of several groups: kept until the last
        stage_backward_weight(iter(_learning(model)), owed.groups, retain_graph=True)


def _learning(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]
