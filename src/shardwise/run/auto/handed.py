"""What blocks make that is read outside them: by which later blocks, and by the loss. Stages hand it on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from shardwise.run.auto.blocks import returned_form
from shardwise.run.auto.plan import Handed


def handed_in(
    model: nn.Module, blocks: list[str], run: Callable[[], object], samples: int
) -> tuple[tuple[Handed, ...], set[str]]:
    """And the tables of words that are read behind the first block too. One forward pass in which what a block makes
    begins a graph of its own, so that gradients say who reads it. `run` returns the losses."""
    tables: dict[str, Tensor] = {}
    entered: list[list[Tensor]] = []
    took: list[Tensor] = []
    made: list[tuple[int, int, Tensor]] = []
    open_calls: list[int] = []

    def entering(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        open_calls.append(len(entered))
        entered.append([x for x in tensors if x.requires_grad])
        took.append(tensors[0] if tensors else torch.empty(0))

    def leaving(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        place, form = open_calls.pop(), returned_form(output)
        if form < 0:
            return output
        leaves = list(output) if form else [output]
        for leaf, x in enumerate(leaves):
            if isinstance(x, Tensor) and x.is_floating_point():
                leaves[leaf] = x.detach().requires_grad_()
                made.append((place, leaf, leaves[leaf]))
        return type(output)(leaves) if form else leaves[0]

    def looked_up(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
            tables[name] = output

        return hook

    modules = [model.get_submodule(name) for name in blocks]
    hooks = [module.register_forward_pre_hook(entering, with_kwargs=True) for module in modules]
    hooks += [module.register_forward_hook(leaving) for module in modules]
    outside = [(n, m) for n, m in model.named_modules() if not any(f"{n}.".startswith(f"{b}.") for b in blocks)]
    hooks += [m.register_forward_hook(looked_up(n)) for n, m in outside if isinstance(m, nn.Embedding)]
    try:
        losses = run()
    finally:
        for hook in hooks:
            hook.remove()
    ends = [x for x in losses if isinstance(x, Tensor) and x.requires_grad] if isinstance(losses, list) else []
    readers = [*((place, x) for place, xs in enumerate(entered) for x in xs), *((len(entered), x) for x in ends)]
    last = _last_readers([x for _, _, x in made], readers)
    found = []
    for (place, leaf, x), reader in zip(made, last, strict=True):
        alike = leaf == 0 and x.shape == took[place].shape
        grows = bool(x.dim()) and x.shape[0] % max(samples, 1) == 0 and x.shape[0] >= samples
        if reader >= 0 or not alike:
            found.append(Handed(place=place, leaf=leaf, last=reader, shape=() if alike else tuple(x.shape),
                                elements=x.numel(), grows=grows))  # fmt: skip
    learning = {name: x for name, x in tables.items() if x.requires_grad}
    late = _last_readers(list(learning.values()), readers)
    return tuple(found), {name for name, reader in zip(learning, late, strict=True) if reader > 0}


def _last_readers(made: list[Tensor], readers: list[tuple[int, Tensor]]) -> list[int]:
    last = [-1] * len(made)
    for place, x in readers if made else ():
        if x.grad_fn is None:  # handed on as it is, or not made of a block's outputs
            reached = [x if x is each else None for each in made]
        else:
            reached = list(torch.autograd.grad(x.sum(), made, retain_graph=True, allow_unused=True))
        last = [place if g is not None else before for g, before in zip(reached, last, strict=True)]
    return last
