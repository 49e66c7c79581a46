"""torch.optim.Muon on a split model: it computes with whole matrices, which FSDP2 has cut into rows. Each is gathered
before its Newton-Schulz steps, on every rank, so that all of them make the step that one process makes."""

from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Muon, Optimizer, _muon

NO_PIECES = "tp=1"
"""pieces that tensor parallelism leaves are plain tensors, whose step would be another"""
_STEPS = "_zeropower_via_newtonschulz"


def whole_matrices(model: nn.Module, optimizers: list[Optimizer]) -> set[str]:
    """Names of what is updated as a whole."""
    held = {id(p) for each in optimizers if isinstance(each, Muon) for group in each.param_groups
            for p in group["params"]}  # fmt: skip
    return {name for name, p in model.named_parameters() if id(p) in held}


def gather_matrices() -> None:
    """From now on, in this process."""
    plain = getattr(_muon, _STEPS)
    if hasattr(plain, "__wrapped__"):
        return

    @wraps(plain)
    def gathered(grad: torch.Tensor, *settings: Any) -> torch.Tensor:
        if not isinstance(grad, DTensor):
            return plain(grad, *settings)  # type: ignore[no-any-return]
        whole = plain(grad.full_tensor(), *settings)
        return distribute_tensor(whole, grad.device_mesh, grad.placements, src_data_rank=None)

    setattr(_muon, _STEPS, gathered)
