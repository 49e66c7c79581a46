"""SyncBatchNorm, which refuses a CPU: torch's batch norm and the two messages that CUDA's sends around it."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class _Synced(torch.autograd.Function):
    """Each rank's mean, deviation and count are gathered; sums of gradients are added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, channels: int, group: dist.ProcessGroup | None) -> Tensor:
        ctx.channels, ctx.group = channels, group
        own = x.new_empty(2 * channels + 1, dtype=torch.float32)
        every = x.new_empty(own.numel() * dist.get_world_size(group), dtype=torch.float32)
        _gather(every, own, group=group)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        sums = gradients[0].new_empty(2 * ctx.channels, dtype=torch.float32)
        dist.all_reduce(sums, group=ctx.group)
        return gradients[0], None, None


def synced_forward(self: nn.SyncBatchNorm, x: Tensor) -> Tensor:
    if self.training and dist.is_initialized() and dist.get_world_size(self.process_group) > 1:
        x = _Synced.apply(x, x.shape[1], self.process_group)  # type: ignore[no-untyped-call]
    return _BatchNorm.forward(self, x)
