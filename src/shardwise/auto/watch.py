"""What a user's step does, seen from outside: the loss it calls `backward` on, the gradients its optimizer gets."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves, tree_map


@contextmanager
def losses_of() -> Iterator[list[float]]:
    """The value of every tensor that `backward` is called on inside."""
    found: list[float] = []
    before = torch.Tensor.backward

    inside = False

    def seen(self: Tensor, *args: Any, **kwargs: Any) -> None:
        nonlocal inside
        if not inside:  # a mode over all functions calls it again by its name
            found.append(float(self.detach()))
        inside, outer = True, inside
        try:
            before(self, *args, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            inside = outer

    torch.Tensor.backward = seen  # type: ignore[method-assign]
    try:
        yield found
    finally:
        torch.Tensor.backward = before  # type: ignore[method-assign]


@contextmanager
def before_update(look: Callable[[], None]) -> Iterator[None]:
    """`look` is called when an optimizer is about to step."""

    def hook(_: Optimizer, *__: Any) -> None:
        look()

    handle = register_optimizer_step_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def samples_of(batch: Any) -> int:
    """The length of the first axis that most tensors of the batch share."""
    lengths = Counter(x.shape[0] for x in tree_leaves(batch) if isinstance(x, Tensor) and x.dim())
    return lengths.most_common(1)[0][0] if lengths else 1


def part_of(batch: Any, place: int, parts: int) -> Any:
    """One of equal parts of the samples; tensors without an axis of samples stay whole."""
    samples = samples_of(batch)
    if samples % parts:
        raise ValueError(f"batch: {samples} samples are not shared evenly by {parts}; write a batch that is")
    own = samples // parts

    def cut(x: Any) -> Any:
        whole = not isinstance(x, Tensor) or not x.dim() or x.shape[0] != samples
        return x if whole else x[place * own : (place + 1) * own]

    return tree_map(cut, batch)
