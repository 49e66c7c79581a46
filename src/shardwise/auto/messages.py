"""The messages of one step of a split model: foretold from the plan, and counted as the step runs."""

import math
from collections import Counter
from typing import Any

from msgspec import Struct
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shardwise.auto.plan import AXES, AutoPlan
from shardwise.auto.shares import shares_of
from shardwise.trace.messages import is_message, message_of
from shardwise.trace.private import wraps_others


class Sent(Struct, frozen=True, order=True):
    """Messages of one kind and size."""

    axis: str
    op: str
    bytes: int


class MessageLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts every message of the process while it is on."""

    def __init__(self, plan: AutoPlan) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alone = next((axis for axis in AXES if getattr(plan.degrees, axis) == plan.degrees.ranks), "world")
        self.sent: Counter[Sent] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if wraps_others(types):
            return NotImplemented
        out = func(*args, **kwargs)
        if is_message(func):
            call = message_of(func, args, kwargs, out)
            if call.op != "receive":
                # an axis over all ranks goes by another name
                axis = self._alone if call.group.name == "world" else call.group.name
                self.sent[Sent(axis, call.op, call.bytes)] += 1
        return out


def foretold(model: nn.Module, plan: AutoPlan, samples: int, width: int) -> "Counter[Sent]":
    """Of one step of this rank. `model`: before it is split; `samples` of this rank; `width` bytes a number."""
    degrees = plan.degrees
    found: Counter[Sent] = Counter()
    if degrees.tp > 1:
        _of_cuts(model, plan, samples / plan.samples, width, found)
    if degrees.dp > 1:
        _of_shards(model, plan, width, found)
    return found


def _of_cuts(model: nn.Module, plan: AutoPlan, scale: float, width: int, found: "Counter[Sent]") -> None:
    def add(op: str, elements: float, times: int = 1) -> None:
        found[Sent("tp", op, round(elements * width))] += times

    again = 2 if plan.degrees.recompute else 1
    for kind in plan.kinds:
        for name in kind.blocks:
            for cut in kind.cuts:
                add("all_reduce", cut.row_elements * scale, again)
                for elements, grows in cut.entries:
                    add("all_reduce", elements * (scale if grows else 1))
                for inner in cut.inner:
                    add("all_reduce", model.get_submodule(name).get_parameter(inner).numel())
    words = plan.vocabulary
    for elements in words.table_outputs:
        add("all_reduce", elements * scale)
    for into, out in zip(words.head_inputs, words.head_outputs, strict=True):
        add("all_reduce", into * scale)
        add("all_gather", out * scale)


def _of_shards(model: nn.Module, plan: AutoPlan, width: int, found: "Counter[Sent]") -> None:
    """FSDP2 gathers a block for its forward and again for its backward, the rest once; each is padded to equal rows."""
    ranks, blocks = plan.degrees.dp, plan.blocks
    cut = shares_of(model, plan, None).of
    shapes = {}
    for name, parameter in model.named_parameters():
        shape = list(parameter.shape)
        if name in cut:
            shape[cut[name].axis] = len(cut[name].indices[0])
        shapes[id(parameter)] = shape
    inside = {id(p) for name in blocks for p in model.get_submodule(name).parameters()}
    units = [({id(p) for p in model.get_submodule(name).parameters()}, 2) for name in blocks]
    units.append((shapes.keys() - inside, 1))
    for parameters, gathers in units:
        size = sum(math.ceil(shapes[p][0] / ranks) * ranks * math.prod(shapes[p][1:]) for p in parameters)
        if size:
            found[Sent("dp", "all_gather", size * width)] += gathers
            found[Sent("dp", "reduce_scatter", size * width)] += 1
