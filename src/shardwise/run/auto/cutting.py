"""A cut made in one block of this rank: weights become shares, the row product's output is summed over the ranks."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.run.auto.fitted import Fitted
from shardwise.run.auto.lanes import Lane, copied_rows
from shardwise.run.auto.plan import ProductCut, Size
from shardwise.run.auto.products import multiplied, output_axis, set_widths
from shardwise.run.auto.spanning import span_ranks

BIAS = "bias"


def apply_cut(block: nn.Module, cut: ProductCut, lane: Lane, held: set[object] | None = None, tokens: int = 0) -> None:
    """`held`: parameters and modules that are shares already, where blocks have some in common. `tokens`: how many of
    them this rank has outside the cut; 0 where every rank has all."""
    held = set() if held is None else held
    entered = _Entered(lane)
    around = block.get_submodule(cut.around)
    for column in cut.columns:
        product = block.get_submodule(column.module)
        if known(held, product, "cut"):
            continue
        keep_columns(product, column.indices[lane.rank], held, views=lane.pretended)
        if not tokens and not column.inside:
            product.register_forward_pre_hook(entered.hook)
        for name, along in (("weight", output_axis(product)), (BIAS, 0)):
            some = copied_rows(column.indices, lane.rank, along)
            if some is not None and getattr(product, name, None) is not None:
                read_as(product, product, name, partial(lane.enter_some, some=some))
    for norm in cut.norms:
        module = block.get_submodule(norm.module)
        if known(held, module, "cut"):
            continue
        for name in ("weight", BIAS):
            keep_features(getattr(module, name, None), norm.indices[lane.rank], held)
        span_ranks(module, norm, lane)
    for stack in cut.stacks:
        own = stack.indices[lane.rank]
        keep_stack(block.get_parameter(stack.parameter), stack.axis, own, held, views=lane.pretended)
        owner, _, name = stack.parameter.rpartition(".")
        _as_wide(block.get_submodule(owner), stack.axis)
        some = copied_rows(stack.indices, lane.rank, stack.axis)
        if some is not None and not known(held, block.get_submodule(owner), f"entered {name}"):
            read_as(around, block.get_submodule(owner), name, partial(lane.enter_some, some=some))
    for name in cut.sums:
        product = block.get_submodule(name)
        if not known(held, product, "cut"):
            keep_rows(product, lane, held)
            product.forward = _totalled(product, lane)
    if cut.row:
        row = block.get_submodule(cut.row)
        if not known(held, row, "cut"):
            keep_rows(row, lane, held)
            row.forward = _summing(row, lane, tokens, entered)
    for size in cut.sizes:
        set_size(block, size)
    for name in dict.fromkeys((*cut.inner, *cut.divided)):
        parts = lane.size if name in cut.divided else 1
        enter_weight(block, name, lane, held, around, summed=name in cut.inner, parts=parts)
    for name in entrances(cut) if tokens else ():
        if not known(held, block.get_submodule(name), f"joined {cut.row}"):
            join_entering(block.get_submodule(name), lane, tokens)
    if known(held, around, f"around {cut.row}"):
        return
    if cut.stacks and not cut.row:
        around.forward = _shared(around.forward, lane)
    around.forward = _within(around.forward, lane, entered, cut)


def known(held: set[object], module: nn.Module, what: str) -> bool:
    """Whether it was done to the module before: blocks may have it in common."""
    key = (id(module), what)
    before = key in held
    held.add(key)
    return before


def enter_weight(
    block: nn.Module,
    name: str,
    lane: Lane,
    held: set[object],
    around: nn.Module,
    *,
    summed: bool = True,
    parts: int = 1,
) -> None:
    """A whole weight of which each rank knows a part of the gradient, and of which it reads one of so many parts,
    wherever code inside `around` reads it."""
    owner, _, parameter = name.rpartition(".")
    module = block.get_submodule(owner)

    def read(x: Tensor) -> Tensor:
        entered = lane.enter(x) if summed else x
        return entered / parts if parts > 1 else entered

    if not known(held, module, f"entered {parameter}"):
        read_as(around, module, parameter, read)


def keep_columns(product: nn.Module, indices: tuple[int, ...], held: set[object], *, views: bool = False) -> None:
    axis = output_axis(product)
    for name, along in (("weight", axis), (BIAS, 0)):
        parameter = getattr(product, name, None)
        if parameter is not None and id(parameter) not in held:
            held.add(id(parameter))
            parameter.data = _chosen(parameter.data, along, indices, views=views)
    set_widths(product)


def keep_features(parameter: nn.Parameter | None, indices: tuple[int, ...], held: set[object]) -> None:
    if parameter is not None:
        keep_stack(parameter, 0, indices, held)


def keep_stack(
    parameter: nn.Parameter, axis: int, indices: tuple[int, ...], held: set[object], *, views: bool = False
) -> None:
    if id(parameter) not in held:
        held.add(id(parameter))
        parameter.data = _chosen(parameter.data, axis, indices, views=views)


def _chosen(whole: Tensor, axis: int, indices: tuple[int, ...], *, views: bool) -> Tensor:
    first, count = indices[0], len(indices)
    if views and indices == tuple(range(first, first + count)):
        return whole.narrow(axis, first, count)
    return whole.index_select(axis, torch.tensor(indices, device=whole.device)).contiguous()


def keep_rows(product: nn.Module, lane: Lane, held: set[object]) -> None:
    weight: Any = product.weight
    if id(weight) not in held:
        held.add(id(weight))
        axis = 1 - output_axis(product)
        length = weight.shape[axis] // lane.size
        own = weight.data.narrow(axis, lane.rank * length, length)
        weight.data = own if lane.pretended else own.contiguous().clone()
    set_widths(product)


def set_size(block: nn.Module, size: Size) -> None:
    owner: Any = block.get_submodule(size.module)
    if size.name.startswith("config."):
        owner.config = copy.copy(owner.config)
        owner = owner.config
    setattr(owner, size.name.removeprefix("config."), size.value)


class _Entered:
    """Products that read the same tensor read it once: its gradient is summed in one message."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.last: tuple[Tensor, Tensor] | None = None
        self.left = False
        """the row product has run"""

    def hook(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.last is None or self.last[0] is not args[0]:
            self.last = (args[0], self.lane.enter(args[0]))
        return (self.last[1], *args[1:])


def entrances(cut: ProductCut) -> list[str]:
    """Modules at which tokens of all ranks are needed: what holds all column products and may read how many tokens
    there are, or, where that is the block itself, each of them."""
    holder = holder_of([column.module for column in cut.columns])
    return [holder] if holder else [column.module for column in cut.columns]


def holder_of(names: Sequence[str]) -> str:
    """The smallest module that holds them all."""
    parts = [name.split(".")[:-1] for name in names]
    common: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return ".".join(common)


def join_entering(module: nn.Module, lane: Lane, tokens: int) -> None:
    """Arguments with this rank's tokens become those with all."""

    def joined(x: Any) -> Any:
        own = isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 3 and x.shape[1] == tokens
        return lane.join(x, 1) if own else x

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple(map(joined, args)), {name: joined(value) for name, value in kwargs.items()}

    module.register_forward_pre_hook(hook, with_kwargs=True)


def _as_wide(module: nn.Module, axis: int) -> None:
    """A convolution of single channels has as many as its weight."""
    if isinstance(module, nn.Conv1d) and axis == 0 and module.groups == module.out_channels == module.in_channels:
        module.groups = module.out_channels = module.in_channels = module.weight.shape[0]


def _totalled(product: nn.Module, lane: Lane) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        made = lane.total(multiplied(product, x))
        bias = getattr(product, BIAS, None)
        return made if bias is None else made + bias

    return forward


def _summing(row: nn.Module, lane: Lane, tokens: int, entered: _Entered) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        entered.left = True
        made = multiplied(row, x)
        total = lane.part(made, 1) if tokens else lane.leave(made)
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


def _within(forward: Callable[..., Any], lane: Lane, entered: _Entered, cut: ProductCut) -> Callable[..., Any]:
    lengths = {max(map(max, stack.indices)) + 1: len(stack.indices[lane.rank]) for stack in cut.stacks}

    def called(*args: Any, **kwargs: Any) -> Any:
        entered.last, entered.left = None, False
        first = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)
        samples = first.shape[0] if cut.flat and first is not None else 1
        try:
            with Fitted(lane, samples, lengths) if cut.fitted else nullcontext():
                made = forward(*args, **kwargs)
            if entered.last is not None and not entered.left:  # a kernel that takes the weight of the row GEMM itself
                raise RuntimeError(f"{cut.row} is not called as a module here, as it was when the model was planned")
            return made
        finally:
            entered.last = None

    return called


def read_as(around: nn.Module, owner: nn.Module, name: str, read: Callable[[Tensor], Tensor]) -> None:
    """Inside a call of `around` a weight is read whose gradient is summed; between, its owner holds the parameter."""
    forward = around.forward

    def called(*args: Any, **kwargs: Any) -> Any:
        with _read_through(owner, name, read):
            return forward(*args, **kwargs)

    around.forward = called


@contextmanager
def _read_through(owner: nn.Module, name: str, read: Callable[[Tensor], Tensor]) -> Iterator[None]:
    parameter = owner._parameters.pop(name)
    assert parameter is not None
    owner.__dict__[name] = read(parameter)
    try:
        yield
    finally:
        del owner.__dict__[name]
        owner._parameters[name] = parameter
