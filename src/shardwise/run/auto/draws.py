"""Random numbers of a step as one process draws them: a rank draws those of all samples and keeps those of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

STEP_SEED = 7
"""random numbers of a proof's steps begin with it, in one process and on every rank"""
SIZED = frozenset({"rand", "randn", "randint"})
FROM_OTHERS = frozenset({"rand_like", "randn_like", "randint_like", "bernoulli", "normal", "multinomial", "poisson"})
IN_PLACE = frozenset(
    {"uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "geometric_", "cauchy_"}
)


class DrawsOfAll(TorchFunctionMode):
    """Inside it, what is drawn with an axis of samples in front is drawn for those of all parts, of which this is one.
    Anything else that is drawn is the same on every rank."""

    def __init__(self, place: int, parts: int, samples: int) -> None:
        """`samples`: of this part."""
        super().__init__()
        self.place, self.parts, self.samples = place, parts, samples

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in SIZED:
            return self._sized(func, args, kwargs)
        if name in FROM_OTHERS and args and self._ours(args[0]):
            args, kwargs = tree_map(self._repeated, (args, kwargs))
            return self._own(func(*args, **kwargs))
        if name in IN_PLACE and args and self._ours(args[0]):
            whole = torch.empty_like(self._repeated(args[0]), memory_format=torch.contiguous_format)
            others = (self._repeated(x) for x in args[1:])
            with torch.no_grad():
                args[0].copy_(self._own(func(whole, *others, **kwargs)))
            return args[0]
        return func(*args, **kwargs)

    def _sized(self, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Sizes are the last argument without a name, or one by one."""
        size = kwargs.get("size", args[-1] if args and isinstance(args[-1], tuple | list) else None)
        alone = size is None
        size = tuple(args) if size is None else tuple(size)
        if not size or size[0] != self.samples:
            return func(*args, **kwargs)
        size = (self.parts * size[0], *size[1:])
        if alone:
            return self._own(func(*size, **kwargs))
        if "size" in kwargs:
            return self._own(func(*args, **{**kwargs, "size": size}))
        return self._own(func(*args[:-1], size, **kwargs))

    def _ours(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dim() > 0 and x.shape[0] == self.samples

    def _repeated(self, x: Any) -> Any:
        return torch.cat([x.detach()] * self.parts) if self._ours(x) else x

    def _own(self, whole: Tensor) -> Tensor:
        return whole[self.place * self.samples : (self.place + 1) * self.samples].contiguous()


def generators(device: str) -> list[Any]:
    """Of the random numbers that a step draws on this device and on the host."""
    return [torch, *([] if device in ("cpu", "meta") else [torch.get_device_module(device)])]


@contextmanager
def draws_begin() -> Iterator[None]:
    """Inside, random numbers are those of every proof; behind it they go on as before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(STEP_SEED)
        yield
