"""The messages of one step of a split model: foretold from the plan, and counted as the step runs."""

import math
from collections import Counter
from collections.abc import Set
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
        degrees = plan.degrees
        both = degrees.dp > 1 and degrees.cp > 1 and degrees.dp * degrees.cp == degrees.ranks
        alone = (axis for axis in AXES if getattr(degrees, axis) == degrees.ranks)
        self.alone = "dp_cp" if both else next(alone, "world")
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
                axis = self.alone if call.group.name == "world" else call.group.name
                self.sent[Sent(axis, call.op, call.bytes)] += 1
        return out


def foretold(
    model: nn.Module, plan: AutoPlan, samples: int, width: int, stage: int = 0, unused: Set[str] = frozenset()
) -> "Counter[Sent]":
    """Of one step of this rank. `model`: before it is split; `samples` of this rank; `width` bytes a number; `unused`:
    parameters that get no gradient."""
    degrees = plan.degrees
    scale = samples / plan.samples / degrees.micro_batches
    found: Counter[Sent] = Counter()
    if degrees.tp > 1:
        _of_cuts(model, plan, scale, width, stage, found)
    if degrees.dp * degrees.cp > 1:
        _of_shards(model, plan, width, stage, unused, found)
    if degrees.cp > 1:
        _of_tokens(plan, scale, width, found)
    found = Counter({sent: count * degrees.micro_batches for sent, count in found.items()})
    if degrees.pp > 1:
        sends = (stage < degrees.pp - 1) + (stage > 0)
        found[Sent("pp", "send", round(plan.boundary * scale * width))] += sends * degrees.micro_batches
        _of_ends(model, plan, width, stage, found)
    return found


def _of_ends(model: nn.Module, plan: AutoPlan, width: int, stage: int, found: "Counter[Sent]") -> None:
    """Once a step: parameters outside the blocks."""
    degrees, cut = plan.degrees, shares_of(model, plan, None).of
    for end in plan.ends:
        parameter = model.get_parameter(end.parameter)
        if not parameter.requires_grad:
            continue
        size = parameter.numel() // (degrees.tp if end.parameter in cut else 1) * width
        if sum(end.needed(each, degrees.pp) for each in range(degrees.pp)) > 1:
            found[Sent("pp", "all_reduce", size)] += 1
        if degrees.dp > 1 and end.needed(stage, degrees.pp):
            found[Sent("dp", "all_reduce", size)] += 1


def _of_cuts(model: nn.Module, plan: AutoPlan, scale: float, width: int, stage: int, found: "Counter[Sent]") -> None:
    inside = scale / plan.degrees.cp

    def add(op: str, elements: float, times: int = 1) -> None:
        found[Sent("tp", op, round(elements * width))] += times

    own, pp = plan.stages[stage], plan.degrees.pp
    for kind in plan.kinds:
        for name in (each for each in kind.blocks if each in own):
            for cut in kind.cuts:
                add("all_reduce", cut.row_elements * inside)
                for elements, grows in cut.entries:
                    add("all_reduce", elements * (inside if grows else 1))
                for inner in cut.inner:
                    add("all_reduce", model.get_submodule(name).get_parameter(inner).numel())
    words = plan.vocabulary
    for elements in words.table_outputs if stage == 0 else ():
        add("all_reduce", elements * scale)
    for into, out in zip(words.head_inputs, words.head_outputs, strict=True) if stage == pp - 1 else ():
        add("all_reduce", into * scale)
        add("all_gather", out * scale)


def _of_tokens(plan: AutoPlan, scale: float, width: int, found: "Counter[Sent]") -> None:
    """Keys and values are gathered for every attention, what blocks make once, behind the last; so are gradients."""
    for sizes in plan.attention:
        for elements in sizes:
            size = round(elements * scale / plan.degrees.tp * width)
            found[Sent("cp", "all_gather", size)] += 1
            found[Sent("cp", "reduce_scatter", size)] += 1
    found[Sent("cp", "all_gather", round(plan.boundary * scale * width))] += 2


def _of_shards(
    model: nn.Module, plan: AutoPlan, width: int, stage: int, unused: Set[str], found: "Counter[Sent]"
) -> None:
    """FSDP2 gathers a block for its forward and again for its backward, the rest once; each is padded to equal rows."""
    degrees, blocks = plan.degrees, plan.stages[stage]
    ranks = degrees.dp * degrees.cp
    axis = "dp_cp" if degrees.dp > 1 and degrees.cp > 1 else "dp" if degrees.dp > 1 else "cp"
    cut = shares_of(model, plan, None).of
    shapes = {}
    for name, parameter in model.named_parameters():
        shape = list(parameter.shape)
        if name in cut:
            shape[cut[name].axis] = len(cut[name].indices[0])
        shapes[id(parameter)] = shape
    inside = {id(p) for name in blocks for p in model.get_submodule(name).parameters()}
    units = [({id(p) for p in model.get_submodule(name).parameters()}, 2) for name in blocks]
    if plan.degrees.pp == 1:
        units.append((set(shapes) - inside, 1))
    silent = {id(p) for name, p in model.named_parameters() if name in unused}
    for parameters, gathers in units:
        padded = {p: math.ceil(shapes[p][0] / ranks) * ranks * math.prod(shapes[p][1:]) for p in parameters}
        size, learned = sum(padded.values()), sum(n for p, n in padded.items() if p not in silent)
        found[Sent(axis, "all_gather", size * width)] += gathers if size else 0
        found[Sent(axis, "reduce_scatter", learned * width)] += 1 if learned else 0
