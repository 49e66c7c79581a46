"""Numbers that a script draws or makes without naming a device (`torch.rand([]) < layerdrop`) are the host's: asking
for their value waits for no kernel."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

MARK = "_on_host"
MAKERS = frozenset(
    {torch.rand, torch.randn, torch.randint, torch.tensor, torch.zeros, torch.ones, torch.full, torch.empty}
)


def mark_made(func: Any, kwargs: dict[str, Any] | None, made: Any) -> None:
    """After a call of the script; what has an axis may be moved to the GPU as it is, so it is not followed."""
    if func in MAKERS and (kwargs or {}).get("device") is None and isinstance(made, Tensor) and not made.dim():
        setattr(made, MARK, True)


def mark_moved(tensor: Tensor) -> None:
    """To the GPU."""
    setattr(tensor, MARK, False)


def all_on_host(tensors: Sequence[Tensor]) -> bool:
    return bool(tensors) and all(getattr(tensor, MARK, False) for tensor in tensors)


def mark_computed(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    if all_on_host(ins):
        for tensor in outs:
            setattr(tensor, MARK, True)
