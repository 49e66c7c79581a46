"""A step computed in 64 bits throughout and without chance, so that a split can be held against the whole."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from shardwise.run.auto.watch import Attention, attention_made
from shardwise.run.runtime.private import swapped

GROUPED = frozenset({"grouped_mm", "_grouped_mm"})
_AS_THEY_ARE: list[bool] = []
"""not empty where a block is tried in the precision that it has"""


class Widened(TorchFunctionMode):
    """Code that asks for 32 bits gets 64: what it rounds would hide what a split does. `called`: functions by name."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.called.append(getattr(func, "__name__", ""))
        if _AS_THEY_ARE:
            return func(*args, **kwargs)
        if func is Tensor.float:
            return args[0].double()
        if getattr(func, "__name__", "") in GROUPED and args[0].dtype == torch.float64:
            return _grouped(*args, **kwargs)
        if any(a is torch.float32 for a in args) or any(v is torch.float32 for v in kwargs.values()):
            args = tuple(torch.float64 if a is torch.float32 else a for a in args)
            kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in kwargs.items()}
        return func(*args, **kwargs)


def _grouped(x: Tensor, weights: Tensor, offs: Tensor, **_: Any) -> Tensor:
    """Experts' products one by one: torch's own kernel for all of them has no 64 bits."""
    ends = [int(end) for end in offs.tolist()]
    starts = [0, *ends[:-1]]
    parts = [x[a:b] @ weights[place] for place, (a, b) in enumerate(zip(starts, ends, strict=True))]
    return torch.cat([*parts, x.new_zeros(x.shape[0] - ends[-1], weights.shape[-1])])


@contextmanager
def as_they_are() -> Iterator[None]:
    """Inside, code that asks for 32 bits gets them: of a block so wide that 64 have no room."""
    _AS_THEY_ARE.append(True)
    try:
        yield
    finally:
        _AS_THEY_ARE.pop()


def widened(value: Any) -> Any:
    """Every floating-point tensor of it in 64 bits."""
    return tree_map(lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x, value)


@contextmanager
def without_chance() -> Iterator[None]:
    """Dropout does nothing: ranks would draw other numbers than one process."""

    def kept(x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x

    def without_dropout(attends: Attention) -> Attention:
        def attended(*args: Any, **kwargs: Any) -> Tensor:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            return attends(*args, **{**kwargs, "dropout_p": 0.0} if "dropout_p" in kwargs else kwargs)

        return attended

    with swapped(F, "dropout", kept), attention_made(without_dropout):
        yield


@contextmanager
def comparable(*, wide: bool) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(without_chance())
        if wide:
            stack.enter_context(Widened())
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        yield
