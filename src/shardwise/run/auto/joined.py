"""Modules in which tokens meet without torch's scaled dot-product attention: eager attention, scans, mixers.

Where ranks share a sequence, such a module gets the tokens of all of them and each rank keeps its own of what it makes:
right for any code, while everything around it runs on a rank's own tokens.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from shardwise.run.auto.cutting import join_entering
from shardwise.run.auto.lanes import Lane
from shardwise.run.auto.sequence import with_first
from shardwise.run.auto.trial import FAILURES, Run, agrees, block_copy, first_of, in_turn, line_of
from shardwise.run.auto.trial_lane import TrialLane
from shardwise.run.auto.watch import attention_seen
from shardwise.run.auto.wide import Widened


def join_tokens(module: nn.Module, lane: Lane, tokens: int) -> None:
    """`tokens`: a rank's own."""
    join_entering(module, lane, tokens)

    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        own = first_of(output).narrow(1, lane.rank * tokens, tokens)
        return own if isinstance(output, Tensor) else (own, *output[1:])

    module.register_forward_hook(hook)


def joins_of(whole: Run, ranks: int, tokens: int) -> tuple[dict[str, int], str]:
    """The smallest modules of a block in which tokens meet, with the elements of what they take; or why sharing the
    tokens around them gives something else."""
    if not tokens or tokens % ranks:
        return {}, f"{tokens} tokens are not shared evenly by {ranks} ranks"
    meeting = _meeting(whole, tokens)
    found = {name: size for name, size in meeting.items() if not any(n.startswith(f"{name}.") for n in meeting)}
    own = tokens // ranks

    def prepared(lane: TrialLane) -> Run:
        block = block_copy(whole.block)
        for name in found:
            join_tokens(block.get_submodule(name), lane, own)
        return Run(block, whole.call, {}, {}, {}, whole.call.fresh())

    def part(rank: int, args: Any) -> Any:
        positional, named = args
        return with_first(positional, named, lambda x: x.narrow(1, rank * own, own))

    try:
        runs, outputs = in_turn(ranks, prepared, part)
        why = agrees(whole, [], torch.cat(outputs, 1), runs)
    except FAILURES as error:
        why = line_of(error)
    where = ", ".join(found) or "no module"
    return ({}, f"with the tokens of all ranks in {where}: {why}") if why else (found, "")


def met_elsewhere(whole: Run, tokens: int) -> str:
    """Empty, or where tokens meet in a block beside its scaled dot-product attention."""
    running: list[str] = []
    attending: set[str] = set()

    def entering(name: str) -> Callable[..., None]:
        return lambda *_: running.append(name)

    def left(*_: Any) -> None:
        running.pop()

    modules = list(whole.block.named_modules())
    hooks = [m.register_forward_pre_hook(entering(name)) for name, m in modules]
    hooks += [m.register_forward_hook(left, always_call=True) for _, m in modules]
    try:
        with attention_seen(lambda _: attending.update(running)):
            meeting = _meeting(whole, tokens) if tokens else {}
    finally:
        for hook in hooks:
            hook.remove()
    others = sorted(set(meeting) - attending)
    return f"tokens meet in {others[0]} too, beside scaled dot-product attention" if others else ""


def _meeting(whole: Run, tokens: int) -> dict[str, int]:
    """Modules that take tokens and make as many, of which some depend on others."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def looking(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            into = next((x for x in tree_leaves((args, kwargs)) if _of_tokens(x, tokens)), None)
            made = output[0] if isinstance(output, tuple) and output else output
            if into is not None and into.requires_grad and _of_tokens(made, tokens):
                seen[name] = (into, made)

        return hook

    modules = [(name, module) for name, module in whole.block.named_modules() if name]
    hooks = [module.register_forward_hook(looking(name), with_kwargs=True) for name, module in modules]
    try:
        args, kwargs = whole.args
        with Widened():
            whole.block(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: into.numel() for name, (into, made) in seen.items() if _depends(into, made, tokens // 2)}


def _of_tokens(x: Any, tokens: int) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 3 and x.shape[1] == tokens


def _depends(into: Tensor, made: Tensor, half: int) -> bool:
    """Later tokens on earlier ones, or the other way."""
    for own, other in ((slice(half, None), slice(None, half)), (slice(None, half), slice(half, None))):
        part = made[:, own]
        (grad,) = torch.autograd.grad((part * torch.rand_like(part)).sum(), into, retain_graph=True, allow_unused=True)
        if grad is not None and bool(grad[:, other].count_nonzero()):
            return True
    return False
