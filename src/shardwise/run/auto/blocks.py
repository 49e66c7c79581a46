"""Which modules of a model repeat, and what the first of each kind is called with."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.auto.watch import AttentionArguments, attention_seen
from shardwise.run.runtime.private import swapped

LEAST_SHARE = 0.02
"""of all parameters, below which repeated modules are not what a model is made of"""


@dataclass
class BlockKind:
    """Blocks of one class with parameters of the same names and sizes, and the same whole numbers (heads, windows) in
    their modules but for their own place, in the order of the model."""

    class_name: str
    names: list[str]
    first: nn.Module


@dataclass
class BlockCall:
    """The arguments of one call of a module; copies are made for every new one."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def fresh(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tree_map(_own, self.args), tree_map(_own, self.kwargs)


@dataclass
class Watched:
    """What was seen while the model ran once: the first call of each kind, and who was called, in order."""

    calls: dict[str, BlockCall] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    """elements of the first input of modules outside the blocks, of one call"""
    outputs: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """calls of those modules"""
    times: dict[str, set[int]] = field(default_factory=dict)
    """of modules outside the blocks: how many blocks had been called when they were"""
    boundary: int = 0
    boundaries: set[tuple[int, ...]] = field(default_factory=set)
    """shapes of what blocks take"""
    samples: int = 0
    tokens: int = 0
    attention: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """elements of keys and values of every attention, by the block it is in"""
    inside: int = 0
    """blocks that have been entered and not left"""
    returns: dict[str, int] = field(default_factory=dict)
    """of the first block of each kind: see `returned_form`"""

    def all_attention(self, kinds: list[BlockKind]) -> tuple[tuple[int, int], ...]:
        """In the order of the blocks. One that was passed by has what the first of its kind has."""
        first = {name: kind.names[0] for kind in kinds for name in kind.names}
        seen = dict.fromkeys(self.order)
        names = [name if name in self.attention else first[name] for name in seen]
        return tuple(each for name in names for each in self.attention.get(name, ()))


def block_kinds(model: nn.Module) -> list[BlockKind]:
    """Outermost lists of modules of which at least two are of one class."""
    total = sum(p.numel() for p in model.parameters())
    found: list[BlockKind] = []
    inside: list[str] = []
    for name, holder in model.named_modules():
        if not isinstance(holder, nn.ModuleList | nn.Sequential) or any(name.startswith(f"{n}.") for n in inside):
            continue
        kinds = _kinds_in(name, holder)
        held = sum(p.numel() for p in holder.parameters())
        if kinds and held >= LEAST_SHARE * total:
            found += kinds
            inside += [each for kind in kinds for each in kind.names]
    return found


def called_again(model: nn.Module, run: Callable[[], object]) -> list[BlockKind]:
    """Outermost modules that one forward pass calls several times, each a kind of its own: layers that share all their
    weights."""
    counts: dict[str, int] = {}

    def counting(name: str) -> Callable[..., None]:
        def count(*_: Any) -> None:
            counts[name] = counts.get(name, 0) + 1

        return count

    hooks = [module.register_forward_pre_hook(counting(name)) for name, module in model.named_modules() if name]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    total = sum(p.numel() for p in model.parameters())
    found: list[BlockKind] = []
    for name, count in counts.items():
        module = model.get_submodule(name)
        inside = any(name.startswith(f"{each.names[0]}.") for each in found)
        if count > 1 and not inside and sum(p.numel() for p in module.parameters()) >= LEAST_SHARE * total:
            found.append(BlockKind(type(module).__name__, [name], module))
    return found


def _kinds_in(name: str, holder: nn.ModuleList | nn.Sequential) -> list[BlockKind]:
    classes: dict[str, int] = {}
    for child in holder:
        classes[type(child).__name__] = classes.get(type(child).__name__, 0) + 1
    by_form: dict[tuple[Any, ...], BlockKind] = {}
    numbers = {key: _numbers_of(child) for key, child in holder.named_children()}
    places = _places(list(numbers.values()))
    for key, child in holder.named_children():
        if classes[type(child).__name__] < 2 or not any(True for _ in child.parameters()):
            continue
        own = tuple(pair for pair in numbers[key].items() if pair[0] not in places)
        form = (type(child).__name__, own, *((n, tuple(p.shape)) for n, p in child.named_parameters()))
        kind = by_form.setdefault(form, BlockKind(type(child).__name__, [], child))
        kind.names.append(f"{name}.{key}" if name else key)
    return list(by_form.values())


def _numbers_of(block: nn.Module) -> dict[str, int]:
    return {
        f"{name}.{attribute}": value
        for name, module in block.named_modules() for attribute, value in vars(module).items()
        if isinstance(value, int) and not isinstance(value, bool) and not attribute.startswith("_")
    }  # fmt: skip


def _places(numbers: list[dict[str, int]]) -> set[str]:
    """Those that only count the blocks."""
    steps = {
        name: {own[name] - place for place, own in enumerate(numbers) if name in own} for own in numbers for name in own
    }
    return {name for name, apart in steps.items() if len(apart) == 1}


def watched(model: nn.Module, kinds: list[BlockKind], run: Callable[[], object]) -> Watched:
    """Runs the model once, listening."""
    seen = Watched()
    members = {name: kind for kind in kinds for name in kind.names}
    hooks = []
    for name, module in model.named_modules():
        if name in members:
            hooks.append(module.register_forward_pre_hook(_noted(seen, name, members[name]), with_kwargs=True))
            hooks.append(module.register_forward_hook(_returned(seen, members[name])))
        elif not any(name.startswith(f"{block}.") for block in members):
            hooks.append(module.register_forward_pre_hook(_timed(seen, name)))
            if isinstance(module, nn.Linear | nn.Embedding):
                hooks.append(module.register_forward_hook(_measured(seen, name)))

    def attended(call: AttentionArguments) -> None:
        if seen.inside:
            seen.attention.setdefault(seen.order[-1], []).append((call.key.numel(), call.value.numel()))

    try:
        with attention_seen(attended):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _noted(seen: Watched, name: str, kind: BlockKind) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.order.append(name)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.is_floating_point()]
        seen.boundary = tensors[0].numel() if tensors else 0
        seen.boundaries.add(tuple(tensors[0].shape) if tensors else ())
        seen.samples = tensors[0].shape[0] if tensors else 0
        seen.tokens = tensors[0].shape[1] if tensors and tensors[0].dim() == 3 else 0
        seen.inside += 1
        if kind.names[0] not in seen.calls:
            call = BlockCall(args, kwargs)
            seen.calls[kind.names[0]] = BlockCall(*call.fresh())

    return hook


def _timed(seen: Watched, name: str) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        seen.times.setdefault(name, set()).add(len(seen.order))

    return hook


def _returned(seen: Watched, kind: BlockKind) -> Callable[..., None]:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        seen.inside -= 1
        seen.returns[kind.names[0]] = returned_form(output)

    return hook


def returned_form(output: Any) -> int:
    """Of what a block returns: 0 for a tensor, n for n values that begin with one, -1 for something else."""
    several = type(output) in (tuple, list) and output and isinstance(output[0], Tensor)
    return 0 if isinstance(output, Tensor) else len(output) if several else -1


def _measured(seen: Watched, name: str) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            seen.inputs[name], seen.outputs[name] = args[0].numel(), output.numel()
            seen.counts[name] = seen.counts.get(name, 0) + 1

    return hook


def _own(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device):
        return value
    return copy.deepcopy(value)


class _Stopped(BaseException):
    """Thrown where a step's forward pass has ended."""


@contextmanager
def until_backward() -> Iterator[list[Tensor]]:
    """What runs inside ends where it would call `backward`: losses so far."""
    losses: list[Tensor] = []

    def stop(self: Tensor, *_: Any, **__: Any) -> None:
        losses.append(self)
        raise _Stopped

    with suppress(_Stopped), swapped(torch.Tensor, "backward", stop):
        yield losses
