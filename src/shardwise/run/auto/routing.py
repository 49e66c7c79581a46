"""Which experts a router chooses: seen in one process, and told to a rank that runs alone."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from shardwise.run.auto.expert_homes import in_order
from shardwise.run.auto.trial import stacked
from shardwise.run.runtime.private import swapped

Choices = dict[str, Tensor]
"""by the name of the experts' module: a row for each token of all samples"""

_gather = dist.all_gather


def routes(model: nn.Module) -> bool:
    return any(stacked(module) for module in model.modules())


@contextmanager
def choices_seen(model: nn.Module) -> Iterator[Choices]:
    """Of what runs inside; the last call counts."""
    found: Choices = {}

    def looking(name: str) -> Callable[..., None]:
        def look(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                found[name] = in_order((*args, *kwargs.values()))[1].detach().clone()
            except ValueError:  # experts that are called otherwise are not shared out
                found.pop(name, None)

        return look

    experts = [(name, module) for name, module in model.named_modules() if stacked(module)]
    hooks = [module.register_forward_pre_hook(looking(name), with_kwargs=True) for name, module in experts]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def gathers_told(model: nn.Module, choices: Mapping[str, Tensor]) -> Iterator[None]:
    """In a pretended world the others send what this rank does, but their routers' choices are those of one process:
    how many tokens come to a rank's experts decides what it holds."""
    running: list[str] = []

    def entering(name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            running[:] = [name]

        return enter

    def gather(parts: list[Tensor], x: Tensor, group: Any = None) -> None:
        _gather(parts, x, group=group)
        known = choices.get(running[0]) if running and not x.is_floating_point() else None
        fits = known is not None and known.numel() == x.numel() * len(parts)
        told = known.reshape(len(parts), *x.shape) if known is not None and fits else None
        for place, part in enumerate(parts):
            part.copy_(x if told is None else told[place])

    modules = [(name, module) for name, module in model.named_modules() if name in choices]
    hooks = [module.register_forward_pre_hook(entering(name)) for name, module in modules]
    try:
        with swapped(dist, "all_gather", gather):
            yield
    finally:
        for hook in hooks:
            hook.remove()
