"""The messages of one step of a split model: foretold from the plan, and counted as the step runs."""

import math
from collections import Counter
from collections.abc import Callable, Set
from typing import Any

from msgspec import Struct
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shardwise.run.auto.lanes import copied_rows
from shardwise.run.auto.means import COUNT_BYTES
from shardwise.run.auto.plan import AXES, AutoPlan, Column
from shardwise.run.auto.products import widths
from shardwise.run.auto.shares import expert_names, shares_of
from shardwise.run.auto.stage import orders_of, ranks_with, routes_of
from shardwise.run.runtime.private import wraps_others
from shardwise.run.trace.messages import is_message, message_of

CHOICE_BYTES = 8
"""of a router's choice, a whole number"""


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
    model: nn.Module,
    plan: AutoPlan,
    samples: int,
    width: int,
    stage: int = 0,
    unused: Set[str] = frozenset(),
    backwards: int = 1,
    whole: Set[str] = frozenset(),
) -> "Counter[Sent]":
    """Of one step of this rank. `model`: before it is split; `samples` of this rank; `width` bytes a number; `unused`:
    parameters that get no gradient; `backwards`: how often a step calls it, each time after such a forward pass;
    `whole`: those that the optimizer gathers."""
    degrees = plan.degrees
    scale = samples / plan.samples / degrees.micro_batches
    found: Counter[Sent] = Counter()
    if degrees.tp > 1:
        _of_cuts(model, plan, scale, width, stage, found)
    if degrees.dp * degrees.cp > 1:
        _of_shards(model, plan, width, stage, unused, found)
    if degrees.cp > 1:
        _of_tokens(plan, scale, width, found)
    if degrees.ep > 1:
        _of_experts(plan, scale, width, found)
    if degrees.dp > 1 and plan.token_means:
        found[Sent("dp", "all_reduce", COUNT_BYTES)] += plan.token_means
    found = Counter({sent: count * degrees.micro_batches * backwards for sent, count in found.items()})
    if whole and degrees.shards * degrees.cp > 1:
        _of_matrices(model, plan, width, stage, whole - unused, found)
    if degrees.pp > 1:
        routes = routes_of(plan, orders_of(plan))
        for way, target, _, which in (key for (sender, _), keys in routes.items() if sender == stage for key in keys):
            handed = plan.crossing(target if way == "F" else target + 1)[which]
            found[Sent("pp", "send", round(handed.elements * (scale if handed.grows else 1) * width))] += 1
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
        if ranks_with(plan, end.parameter) > 1:
            found[Sent("pp", "all_reduce", size)] += 1
        if degrees.dp > 1 and end.needed(plan.held[stage], len(plan.stages)):
            found[Sent("dp", "all_reduce", size)] += 1


def _of_cuts(model: nn.Module, plan: AutoPlan, scale: float, width: int, stage: int, found: "Counter[Sent]") -> None:
    inside, calls = scale / plan.degrees.cp, 1

    def add(op: str, elements: float, times: int = 1) -> None:
        found[Sent("tp", op, round(elements * width))] += times * calls

    own, held = plan.own(stage), plan.held[stage]
    for kind in plan.kinds:
        for name in (each for each in kind.blocks if each in own):
            block, calls = model.get_submodule(name), plan.calls(name)
            for outside in kind.outside if plan.degrees.sp else ():
                add("all_reduce", block.get_parameter(outside).numel())
            for cut in kind.cuts:
                whole = [(cut.row_elements, True), *cut.entries]
                if plan.degrees.sp:  # joined and summed where it was only summed, forwards and backwards
                    for elements in (cut.row_elements, plan.boundary):
                        add("all_gather", elements * inside)
                        add("reduce_scatter", elements * inside)
                    rows = plan.samples * plan.tokens
                    joined = {rows * widths(block.get_submodule(each.module))[0] for each in cut.columns}
                    whole = [entry for entry in cut.entries if entry[0] not in joined]
                for elements, grows in whole:
                    add("all_reduce", elements * (inside if grows else 1))
                for elements in cut.totals:
                    add("all_reduce", elements * inside, 2)
                for column in cut.columns:
                    _of_copies(model.get_submodule(f"{name}.{column.module}"), column, add)
                for stack in cut.stacks:
                    some = copied_rows(stack.indices, 0, stack.axis)
                    weight = block.get_parameter(stack.parameter)
                    if some is not None:
                        add("all_reduce", some.count * weight.numel() // weight.shape[stack.axis])
                for inner in cut.inner:
                    add("all_reduce", model.get_submodule(name).get_parameter(inner).numel())
    calls = 1
    if plan.degrees.sp:
        add("all_gather", plan.boundary * inside, 2 * len(held))
    words = plan.vocabulary
    for elements, times in zip(words.table_outputs, words.table_calls, strict=True) if 0 in held else ():
        add("all_reduce", elements * scale, times)
    heads = zip(words.head_inputs, words.head_outputs, words.head_calls, strict=True)
    for into, out, times in heads if len(plan.stages) - 1 in held else ():
        add("all_reduce", into * scale, times)
        add("all_gather", out * scale, times)


def _of_copies(product: nn.Module, column: Column, add: Callable[[str, float], None]) -> None:
    """Gradients of outputs that several ranks hold."""
    some = copied_rows(column.indices, 0, 0)
    if some is not None:
        add("all_reduce", some.count * widths(product)[0])
        if getattr(product, "bias", None) is not None:
            add("all_reduce", some.count)


def _of_experts(plan: AutoPlan, scale: float, width: int, found: "Counter[Sent]") -> None:
    """Tokens, choices and weights of all ranks come to the experts, sums go back; then gradients the other way."""
    for kind in plan.kinds:
        for home in kind.homes:
            of_all = scale * plan.degrees.ep
            hidden, chosen = round(home.hidden * of_all), round(home.chosen * of_all)
            blocks = len(kind.blocks)
            found[Sent("dp", "all_gather", hidden * width)] += 2 * blocks
            found[Sent("dp", "reduce_scatter", hidden * width)] += 2 * blocks
            if chosen:
                found[Sent("dp", "all_gather", chosen * width)] += blocks
                found[Sent("dp", "reduce_scatter", chosen * width)] += blocks
                found[Sent("dp", "all_gather", chosen * CHOICE_BYTES)] += blocks


def _of_tokens(plan: AutoPlan, scale: float, width: int, found: "Counter[Sent]") -> None:
    """Keys and values are gathered for every attention, what blocks make once, behind the last; so are gradients."""
    for sizes in plan.attention:
        for elements in sizes:
            size = round(elements * scale / plan.degrees.tp * width)
            found[Sent("cp", "all_gather", size)] += 1
            found[Sent("cp", "reduce_scatter", size)] += 1
    for kind in plan.kinds:
        for elements in kind.joins.values():
            calls = sum(map(plan.calls, kind.blocks))
            found[Sent("cp", "all_gather", round(elements * scale * width))] += calls
            found[Sent("cp", "reduce_scatter", round(elements * scale * width))] += calls
    found[Sent("cp", "all_gather", round(plan.boundary * scale * width))] += 2


def _shard_axis(plan: AutoPlan) -> str:
    degrees = plan.degrees
    if degrees.replicas > 1:
        return "dp_shard"
    return ("dp_cp" if degrees.cp > 1 else "dp") if degrees.dp > 1 else "cp"


def _of_matrices(
    model: nn.Module, plan: AutoPlan, width: int, stage: int, whole: Set[str], found: "Counter[Sent]"
) -> None:
    """Once a step: matrices that FSDP2 has cut into equal rows."""
    ranks, here = plan.degrees.shards * plan.degrees.cp, tuple(f"{name}." for name in plan.own(stage))
    for name in whole - set(plan.whole):
        if plan.degrees.pp == 1 or name.startswith(here):
            rows, *others = model.get_parameter(name).shape
            found[
                Sent(_shard_axis(plan), "all_gather", math.ceil(rows / ranks) * ranks * math.prod(others) * width)
            ] += 1


def _of_shards(
    model: nn.Module, plan: AutoPlan, width: int, stage: int, unused: Set[str], found: "Counter[Sent]"
) -> None:
    """FSDP2 gathers a block for its forward and again for its backward, the rest once; each is padded to equal rows."""
    degrees, blocks = plan.degrees, plan.own(stage)
    ranks = degrees.shards * degrees.cp
    axis = _shard_axis(plan)
    cut, experts = shares_of(model, plan, None).of, expert_names(model, plan)
    ends = {end.parameter for end in plan.ends if plan.degrees.pp > 1}
    shapes = {}
    for name, parameter in model.named_parameters():
        if name in experts:  # FSDP2 leaves them alone
            continue
        shape = list(parameter.shape)
        if name in cut:
            shape[cut[name].axis] = len(cut[name].indices[0])
        if name not in plan.whole:
            shapes[id(parameter)] = shape
        elif parameter.requires_grad and name not in unused | ends:
            found[Sent("dp" if degrees.replicas > 1 else axis, "all_reduce", math.prod(shape) * width)] += 1
    inside = {id(p) for name in blocks for p in model.get_submodule(name).parameters()}
    units = [
        ({id(p) for p in model.get_submodule(name).parameters()} & set(shapes), 2, plan.calls(name)) for name in blocks
    ]
    for name in plan.roots if plan.degrees.pp == 1 else ():
        held = {id(p) for p in model.get_submodule(name).parameters()}
        units.append((held & set(shapes) - inside, 1, 1))
    silent = {id(p) for name, p in model.named_parameters() if name in unused}
    for parameters, gathers, calls in units:
        padded = {p: math.ceil(shapes[p][0] / ranks) * ranks * math.prod(shapes[p][1:]) for p in parameters}
        size, learned = sum(padded.values()), sum(n for p, n in padded.items() if p not in silent)
        found[Sent(axis, "all_gather", size * width)] += gathers * calls if size else 0
        found[Sent(axis, "reduce_scatter", learned * width)] += 1 if learned else 0
        if degrees.replicas > 1 and learned:
            found[Sent("dp_replicate", "all_reduce", learned * width // ranks)] += 1
