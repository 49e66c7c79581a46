"""Chains of element-wise operations and row sums: one kernel each on a GPU, as they are written on the CPU."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

SHAPES = 64
"""shapes a chain is compiled for before torch falls back on running it operation by operation"""


def fused(*, varies: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`varies`: the number of rows changes from call to call, so one kernel serves all of them."""

    def wrap(chain: Callable[P, R]) -> Callable[P, R]:
        compiled: list[Callable[P, R]] = []

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not _on_gpu(args):
                return chain(*args, **kwargs)
            if not compiled:
                import torch._dynamo

                torch._dynamo.config.recompile_limit = SHAPES
                compiled.append(torch.compile(chain, dynamic=varies))
            return compiled[0](*args, **kwargs)

        return call

    return wrap


def _on_gpu(args: tuple[Any, ...]) -> bool:
    return any(isinstance(arg, Tensor) and arg.is_cuda for arg in args)
