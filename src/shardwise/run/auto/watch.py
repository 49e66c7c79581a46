"""What a user's step does, seen from outside: the loss it calls `backward` on, the gradients its optimizer gets, the
attention it calls, which may also be made another one."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.runtime.private import swapped

Attention = Callable[..., Tensor]


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

    with swapped(torch.Tensor, "backward", seen):
        yield found


@contextmanager
def attention_made(make: Callable[[Attention], Attention]) -> Iterator[None]:
    """Inside, torch's scaled dot-product attention is what `make` makes of it."""
    with swapped(F, "scaled_dot_product_attention", make(F.scaled_dot_product_attention)):
        yield


@dataclass(frozen=True)
class AttentionArguments:
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool


@contextmanager
def attention_seen(look: Callable[[AttentionArguments], None]) -> Iterator[None]:
    """Inside, `look` gets every call of torch's scaled dot-product attention."""

    def looked_at(attends: Attention) -> Attention:
        def attended(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
            is_causal: bool = False, **rest: Any,
        ) -> Tensor:  # fmt: skip
            look(AttentionArguments(query, key, value, attn_mask, is_causal))
            return attends(query, key, value, attn_mask, dropout_p, is_causal, **rest)

        return attended

    with attention_made(looked_at):
        yield


@contextmanager
def before_update(look: Callable[[], None]) -> Iterator[None]:
    """`look` is called when an optimizer is about to step: behind the closure that makes its gradients, if it has
    one."""

    def hook(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            look()
            return None

        def made() -> Any:
            with torch.enable_grad():
                loss = closure()
            look()
            return loss

        return (args[0], made, *args[2:]) if len(args) > 1 else args, kwargs if len(args) > 1 else {
            **kwargs,
            "closure": made,
        }

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
