"""Whether the experts of a block may be shared out whole: tried in one process, against the whole block."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from shardwise.run.auto.expert_homes import house_experts, in_order, own_experts
from shardwise.run.auto.experts import biases_of
from shardwise.run.auto.plan import ExpertHome, ExpertStack, ProductCut, Size
from shardwise.run.auto.trial import FAILURES, Run, agrees, block_copy, in_turn, line_of, stacked
from shardwise.run.auto.trial_lane import TrialLane
from shardwise.run.auto.wide import Widened


def homes_of(whole: Run, ranks: int, samples: int) -> tuple[tuple[ExpertHome, ...], str]:
    """Lists of experts in the block that pass the trial; or none, and why not."""
    names = [name for name, module in whole.block.named_modules() if stacked(module)]
    if not names:
        return (), "it has no experts whose weights lie in one tensor each"
    found = []
    for name in names:
        home, why = _home(whole, name, ranks)
        why = why or ("" if home is None else _refused(whole, home, ranks, samples))
        if home is None or why:
            return (), f"{name}: {why}"
        found.append(home)
    return tuple(found), ""


def _home(whole: Run, name: str, ranks: int) -> tuple[ExpertHome | None, str]:
    module = whole.block.get_submodule(name)
    weights = stacked(module)
    count = module.get_parameter(weights[0]).shape[0]
    if count % ranks:
        return None, f"{count} experts are not shared evenly by {ranks} ranks"
    weights += biases_of(module)
    if len(weights) != len(list(module.parameters())):
        return None, "it has weights that belong to no expert"
    try:
        given = _called_with(whole, module)
        rows = len(given) == 1 and isinstance(given[0], Tensor) and given[0].shape[0] % count == 0
        hidden, chosen = (given[0], 0) if rows else _tokens(given)
    except FAILURES as error:
        return None, line_of(error)
    sizes = [Size(module=name, name=attribute, value=count // ranks) for attribute, value in vars(module).items()
             if not attribute.startswith("_") and type(value) is int and value == count]  # fmt: skip
    return ExpertHome(module=name, parameters=tuple(weights), count=count, sizes=tuple(sizes),
                      hidden=hidden.numel(), chosen=chosen), ""  # fmt: skip


def _tokens(given: tuple[Any, ...]) -> tuple[Tensor, int]:
    """And how many choices routers make for them."""
    hidden, chosen, _ = in_order(given)
    return hidden, chosen.numel()


def _called_with(whole: Run, module: nn.Module) -> tuple[Any, ...]:
    calls: list[tuple[Any, ...]] = []

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((*args, *kwargs.values()))

    handle = module.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        args, kwargs = whole.args
        with Widened():
            whole.block(*args, **kwargs)
    finally:
        handle.remove()
    if len(calls) != 1:
        raise ValueError(f"its experts run {len(calls)} times")
    return calls[0]


def _refused(whole: Run, home: ExpertHome, ranks: int, samples: int) -> str:
    if samples % ranks:
        return f"{samples} samples are not shared evenly by {ranks} ranks"
    each = samples // ranks
    own = own_experts(home.count, ranks)
    stacks = tuple(ExpertStack(parameter=f"{home.module}.{name}", axis=0, indices=own) for name in home.parameters)

    def prepared(lane: TrialLane) -> Run:
        block = block_copy(whole.block)
        house_experts(block, home, lane, 1)
        return Run(block, whole.call, {}, {}, {}, whole.call.fresh())

    def part(rank: int) -> Callable[[Any], Any]:
        def cut(x: Any) -> Any:
            batched = isinstance(x, Tensor) and x.dim() and x.shape[0] == samples
            return x.narrow(0, rank * each, each) if batched else x

        return cut

    try:
        runs, outputs = in_turn(ranks, prepared, lambda rank, args: tree_map(part(rank), args))
        total = torch.cat(outputs, 0)
    except FAILURES as error:
        return line_of(error)
    return agrees(whole, [ProductCut(around=home.module, stacks=stacks)], total, runs)
