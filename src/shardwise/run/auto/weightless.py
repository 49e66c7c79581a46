"""A model built without its weights: parameters have shapes, buffers their values. A model of any size is built so."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from shardwise.run.runtime.private import swapped


class StaysWeightless(TorchFunctionMode):
    """Weights without values have none wherever they are sent."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.is_meta:
            if func in (Tensor.cuda, Tensor.cpu):
                return first
            if func is Tensor.to:
                return _converted(first, (*args[1:], *kwargs.values()))
            if func is torch.empty_like:
                kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        return func(*args, **kwargs)


def _converted(tensor: Tensor, asked: tuple[Any, ...]) -> Tensor:
    for each in asked:
        if isinstance(each, torch.dtype):
            return tensor.to(each)
        if isinstance(each, Tensor):
            return tensor.to(each.dtype)
    return tensor


@contextmanager
def without_weights() -> Iterator[None]:
    """Modules that are made inside lose the values of a parameter as soon as they get it, one by one; what modules
    share stays shared."""
    plain = nn.Module.register_parameter
    known: Any = WeakIdKeyDictionary()

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            if parameter not in known:
                known[parameter] = nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)
            parameter = known[parameter]
        plain(module, name, parameter)

    with swapped(nn.Module, "register_parameter", registered), StaysWeightless():
        yield
