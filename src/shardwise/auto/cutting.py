"""A cut made in one block of this rank: weights become shares, the row product's output is summed over the ranks."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.auto.fitted import Fitted
from shardwise.auto.lanes import Lane
from shardwise.auto.plan import ProductCut, Size
from shardwise.auto.products import multiplied, output_axis, set_widths

BIAS = "bias"


def apply_cut(block: nn.Module, cut: ProductCut, lane: Lane, held: set[int] | None = None) -> None:
    """`held`: parameters that are shares already, where modules share a weight."""
    held = set() if held is None else held
    entered = _Entered(lane)
    for column in cut.columns:
        product = block.get_submodule(column.module)
        keep_columns(product, column.indices[lane.rank], held)
        product.register_forward_pre_hook(entered.hook)
    for stack in cut.stacks:
        keep_stack(block.get_parameter(stack.parameter), stack.axis, stack.indices[lane.rank], held)
    if cut.row:
        row = block.get_submodule(cut.row)
        keep_rows(row, lane, held)
        row.forward = _summing(row, lane)
    for size in cut.sizes:
        set_size(block, size)
    for name in cut.inner:
        owner, _, parameter = name.rpartition(".")
        _sum_gradient(block.get_submodule(owner), parameter, lane)
    around = block.get_submodule(cut.around)
    if cut.stacks:
        around.forward = _shared(around.forward, lane)
    around.forward = _within(around.forward, lane, entered, fitted=cut.fitted)


def keep_columns(product: nn.Module, indices: tuple[int, ...], held: set[int]) -> None:
    axis = output_axis(product)
    chosen = list(indices)
    for name, along in (("weight", axis), (BIAS, 0)):
        parameter = getattr(product, name, None)
        if parameter is not None and id(parameter) not in held:
            held.add(id(parameter))
            parameter.data = parameter.data.index_select(along, _index(chosen, parameter)).contiguous()
    set_widths(product)


def keep_stack(parameter: nn.Parameter, axis: int, indices: tuple[int, ...], held: set[int]) -> None:
    if id(parameter) not in held:
        held.add(id(parameter))
        parameter.data = parameter.data.index_select(axis, _index(list(indices), parameter)).contiguous()


def keep_rows(product: nn.Module, lane: Lane, held: set[int]) -> None:
    weight: Any = product.weight
    if id(weight) not in held:
        held.add(id(weight))
        axis = 1 - output_axis(product)
        length = weight.shape[axis] // lane.size
        weight.data = weight.data.narrow(axis, lane.rank * length, length).contiguous().clone()
    set_widths(product)


def set_size(block: nn.Module, size: Size) -> None:
    owner: Any = block.get_submodule(size.module)
    if size.name.startswith("config."):
        owner.config = copy.copy(owner.config)
        owner = owner.config
    setattr(owner, size.name.removeprefix("config."), size.value)


def _index(chosen: list[int], like: Tensor) -> Tensor:
    return torch.tensor(chosen, device=like.device)


class _Entered:
    """Products that read the same tensor read it once: its gradient is summed in one message."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.last: tuple[Tensor, Tensor] | None = None

    def hook(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.last is None or self.last[0] is not args[0]:
            self.last = (args[0], self.lane.enter(args[0]))
        return (self.last[1], *args[1:])


def _summing(row: nn.Module, lane: Lane) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        total = lane.leave(multiplied(row, x))
        bias = getattr(row, BIAS, None)
        return total if bias is None else total + bias

    return forward


def _shared(forward: Callable[..., Any], lane: Lane) -> Callable[..., Any]:
    """A module of which each rank computes a share of the whole output from whole inputs."""

    def entered(x: Any) -> Any:
        return lane.enter(x) if isinstance(x, Tensor) and x.requires_grad else x

    def called(*args: Any, **kwargs: Any) -> Any:
        output = forward(*map(entered, args), **{name: entered(value) for name, value in kwargs.items()})
        return lane.leave(output)

    return called


def _within(forward: Callable[..., Any], lane: Lane, entered: _Entered, *, fitted: bool) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        entered.last = None
        try:
            with Fitted(lane) if fitted else nullcontext():
                return forward(*args, **kwargs)
        finally:
            entered.last = None

    return called


def _sum_gradient(owner: nn.Module, name: str, lane: Lane) -> None:
    """The module reads a weight whose gradient is summed; between its calls it holds the parameter itself."""
    forward = owner.forward

    def called(*args: Any, **kwargs: Any) -> Any:
        with _read_through(owner, name, lane):
            return forward(*args, **kwargs)

    owner.forward = called


@contextmanager
def _read_through(owner: nn.Module, name: str, lane: Lane) -> Iterator[None]:
    parameter = owner._parameters.pop(name)
    assert parameter is not None
    owner.__dict__[name] = lane.enter(parameter)
    try:
        yield
    finally:
        del owner.__dict__[name]
        owner._parameters[name] = parameter
