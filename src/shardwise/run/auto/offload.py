"""What a split model keeps on the host: activations between forward and backward, optimizer state between steps.

On a CPU the host is the same memory: copies are made there as they are on a GPU, and counted apart.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import _disable_current_modes

MARK = "on_host"


def on_host(x: Tensor) -> bool:
    return getattr(x, MARK, False)


def away(x: Tensor) -> Tensor:
    """A copy on the host, which nothing that counts the device's tensors sees."""
    with _disable_current_modes(), torch.no_grad():
        copy = torch.empty_like(x, device="cpu", pin_memory=x.is_cuda)
        copy.copy_(x)
    setattr(copy, MARK, True)
    return copy


def back(x: Tensor, device: torch.device) -> Tensor:
    with _disable_current_modes(), torch.no_grad():
        return x.to(device, copy=True)


def activations_away(block: nn.Module) -> None:
    """What the block saves for its backward is on the host until then; its weights stay where they are."""
    forward: Callable[..., Any] = block.forward

    def called(*args: Any, **kwargs: Any) -> Any:
        weights = {p.untyped_storage()._cdata for p in block.parameters() if not isinstance(p, DTensor)}

        def pack(x: Tensor) -> tuple[Tensor, torch.device | None]:
            stays = not x.dim() or x.untyped_storage()._cdata in weights
            return (x, None) if stays else (away(x), x.device)

        def unpack(kept: tuple[Tensor, torch.device | None]) -> Tensor:
            return kept[0] if kept[1] is None else back(kept[0], kept[1])

        with saved_tensors_hooks(pack, unpack):
            return forward(*args, **kwargs)

    block.forward = called


def state_away(optimizer: torch.optim.Optimizer) -> None:
    """What the optimizer keeps of each parameter comes back for its step only."""

    def come(own: torch.optim.Optimizer, *_: Any) -> None:
        _each(own, lambda x, device: back(x, device) if on_host(x) else x)

    def go(own: torch.optim.Optimizer, *_: Any) -> None:
        _each(own, lambda x, _: away(x))

    optimizer.register_step_pre_hook(come)
    optimizer.register_step_post_hook(go)


def _each(optimizer: torch.optim.Optimizer, moved: Callable[[Tensor, torch.device], Tensor]) -> None:
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if not isinstance(value, Tensor) or not value.dim():  # a counter of steps
                continue
            if isinstance(value, DTensor):
                value._local_tensor = moved(value._local_tensor, parameter.device)
            else:
                state[name] = moved(value, parameter.device)
