"""Code that writes the whole model's sizes into its views, run by a rank that holds a share: sizes are fitted then.

Only calls that fail are changed. What they then give is held against the whole block before a cut is made.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.auto.lanes import Lane, own_share

VIEWS = frozenset({"view", "reshape", "unflatten", "expand", "_unsafe_view"})
FAILURES = (RuntimeError, ValueError, TypeError)
SPLITS = frozenset({"split", "split_with_sizes"})
MOST_PARTS = 8


class Fitted(TorchFunctionMode):
    """Inside it, a view that does not fit is divided, and a tensor of all heads beside one of a share is cut."""

    def __init__(self, lane: Lane, samples: int = 1, lengths: Mapping[int, int] | None = None) -> None:
        """`samples`: of tensors whose first axis runs over samples and heads; 1 where there are none. `lengths`: of
        weights that are shared out, and what a rank has of them."""
        super().__init__()
        self.lane, self.samples, self.lengths = lane, samples, lengths or {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            if getattr(func, "__name__", "") in SPLITS and _ragged(args, kwargs):
                raise ValueError("parts of different lengths")
            return func(*args, **kwargs)
        except FAILURES as error:
            found = self._again(func, args, kwargs)
            if found is None:
                raise error from None
            return found

    def _again(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        if name in VIEWS and args and isinstance(args[0], Tensor):
            sizes = args[1] if len(args) == 2 and isinstance(args[1], Sequence) else args[1:]
            for other in _divided(args[0].shape, tuple(sizes), self.lane.size):
                try:
                    return func(args[0], other, **kwargs)
                except FAILURES:
                    continue
            return None
        if name in SPLITS:
            size = args[1] if len(args) > 1 else kwargs.get("split_size", kwargs.get("split_size_or_sections"))
            rest = {k: v for k, v in kwargs.items() if not k.startswith("split_size")}
            axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
            shares = self._shares(size, args[0].shape[axis])
            return None if shares is None else func(args[0], shares, *args[2:], **rest)
        return self._cut_to_fit(func, args, kwargs)

    def _shares(self, size: Any, length: int) -> Any:
        """Of parts of different lengths as many are divided as give the length: others hold what all ranks need."""
        ranks = self.lane.size
        if isinstance(size, int):
            return size // ranks if size % ranks == 0 else None
        if not isinstance(size, Sequence) or len(size) > MOST_PARTS or not all(isinstance(each, int) for each in size):
            return None
        own = [(*([each // ranks] if each % ranks == 0 else []), self.lengths.get(each, each), each) for each in size]
        return next((list(each) for each in product(*own) if sum(each) == length), None)

    def _cut_to_fit(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The one whose axis is as many times longer as there are ranks; also in a list of tensors to be joined."""
        tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        for whole in tensors:
            for axis in sorted({axis for share in tensors for axis in _longer(whole, share, self.lane.size)}):
                cut = self._own(whole, axis)
                try:
                    own_args, own_kwargs = tree_map(partial(_instead, whole, cut), (args, kwargs))
                    return func(*own_args, **own_kwargs)
                except FAILURES:
                    continue
        return None

    def _own(self, whole: Tensor, axis: int) -> Tensor:
        if self.samples == 1 or whole.dim() + axis or whole.shape[0] % (self.samples * self.lane.size):
            return own_share(self.lane, whole, axis)
        return own_share(self.lane, whole.view(self.samples, -1, *whole.shape[1:]), 1).flatten(0, 1)


def _instead(whole: Tensor, cut: Tensor, value: Any) -> Any:
    return cut if value is whole else value


def _divided(shape: torch.Size, sizes: tuple[Any, ...], ranks: int) -> list[tuple[int, ...]]:
    """The sizes with one of them divided: behind those that are the same as they were, the leading one first."""
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return []
    same = 0
    while same < min(len(shape), len(sizes)) and shape[same] == sizes[same]:
        same += 1
    places = [*range(same, len(sizes)), *range(same)]
    return [
        (*sizes[:at], sizes[at] // ranks, *sizes[at + 1 :]) for at in places if sizes[at] > 0 and sizes[at] % ranks == 0
    ]


def _ragged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Equal parts were asked for and the last one would be shorter."""
    size = args[1] if len(args) > 1 else kwargs.get("split_size", kwargs.get("split_size_or_sections"))
    axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
    return isinstance(size, int) and bool(args[0].shape[axis] % size)


def _longer(whole: Tensor, share: Tensor, ranks: int) -> list[int]:
    """The axes, counted from the last, on which one is `ranks` times as long as the other."""
    axes = range(1, min(whole.dim(), share.dim()) + 1)
    return [-axis for axis in axes if whole.shape[-axis] == ranks * share.shape[-axis] and whole.shape[-axis] > 1]
