"""What a step does to tensors apart from training the model: pipeline stages would leave it out, or do it too often.

Stages run the step up to its loss once for every micro-batch, and after the last one clip, step optimizers and
schedulers and forget gradients. Anything else that a step changes, or makes of parameters after `backward`, is named.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shardwise.run.runtime.private import in_backward, swapped
from shardwise.run.trace.messages import tensors_in

TORCH, OWN = str(Path(torch.__file__).parent), str(Path(__file__).parents[1])
KNOWN_FILES = ("/optim/optimizer.py", "/optim/lr_scheduler.py")
KNOWN_FUNCTIONS = frozenset({"zero_grad", "clip_grad_norm_", "clip_grad_value_"})


class SideEffects(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Of one step of a program in one process: the lines that do something else."""

    def __init__(self, model: nn.Module, batch: object) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.lines: dict[str, None] = {}
        self.after = False
        """`backward` was called"""
        self.made = {_key(x) for x in tree_leaves(batch) if isinstance(x, Tensor)}
        """storages that the step may change: those it has made, samples and buffers, which are compared"""
        self.made |= {_key(x) for x in model.buffers()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not in_backward():
            self._look(func, args, kwargs)
        out = func(*args, **kwargs)
        self.made.update(map(_key, tensors_in([out]) if not func._schema.is_mutable else ()))
        return out

    def _look(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        written = {_key(x) for x in tensors_in(list(_written(func, args, kwargs)))}
        used = {_key(x) for x in tensors_in([*args, *kwargs.values()])} if self.after else set()
        if not written - self.made and not used & self._trained():
            return
        line = _line_of(sys._getframe())
        if line:
            self.lines.setdefault(f"{line}, {'after' if self.after else 'before'} backward")

    def _trained(self) -> set[int]:
        tensors = (x for p in self.model.parameters() for x in (p, p.grad) if x is not None)
        return {_key(x) for x in tensors}


def _key(tensor: Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> Iterator[Any]:
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[place] if place < len(args) else kwargs.get(argument.name)


def _line_of(frame: FrameType | None) -> str:
    """The innermost line of the user's code; empty where torch does what stages do as well."""
    line = ""
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(TORCH):
            if file.endswith(KNOWN_FILES) or function in KNOWN_FUNCTIONS:
                return ""
        elif not file.startswith(OWN):
            line = line or f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return line


@contextmanager
def side_effects(model: nn.Module, batch: object, *, on: bool) -> Iterator[dict[str, None]]:
    """The lines of what runs inside, in their order; none where it is not `on`."""
    effects = SideEffects(model, batch)
    if not on:
        yield effects.lines
        return
    original: Callable[..., None] = torch.Tensor.backward

    def seen(self: Tensor, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        effects.after = True

    with swapped(torch.Tensor, "backward", seen), effects:
        yield effects.lines


@contextmanager
def gradients_kept() -> Iterator[None]:
    """Code that forgets gradients first does so once a step, not before every micro-batch: here it does nothing."""

    def kept(*_: Any, **__: Any) -> None: ...

    with swapped(torch.optim.Optimizer, "zero_grad", kept), swapped(nn.Module, "zero_grad", kept):
        yield
