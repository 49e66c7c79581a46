"""DistributedDataParallel in Python: the same buckets, copies and messages as its C++ reducer, which cannot be traced.

Gradients are copied into buckets of 25 MiB (the first of 1) in the order in which they come, each bucket is summed as
soon as it is full, and what was summed is copied back when the backward pass ends. So it is from the second pass on: in
the first one torch finds out the order too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shardwise.run.runtime.private import after_backward, bucket_order, swapped

MIB = 2**20


class _Copying:
    """Whether the reducer is copying: torch's C++ does it, outside autograd."""

    def __init__(self) -> None:
        self.now = False

    def __enter__(self) -> None:
        self.now = True

    def __exit__(self, *_: object) -> None:
        self.now = False


COPYING = _Copying()


def _parts(buffer: Tensor, bucket: list[nn.Parameter]) -> tuple[Tensor, ...]:
    return buffer.split_with_sizes([p.numel() for p in bucket])


class _Buckets:
    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None, cap: float, *, views: bool) -> None:
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.group, self.cap, self.views = group, cap, views
        self.arrived: list[nn.Parameter] = []
        self.place: dict[nn.Parameter, int] = {}
        self.members: list[list[nn.Parameter]] = []
        self.buffers: list[Tensor] = []
        self.parts: dict[nn.Parameter, Tensor] = {}
        """of the buckets: views that torch makes once"""
        self.missing: list[int] = []
        self.works: list[dist.Work | None] = []
        self.waits = False
        self._assign(self.parameters[::-1])

    def _assign(self, order: list[nn.Parameter]) -> None:
        found = bucket_order(order, [MIB, round(self.cap * MIB)])
        self.members = [[order[place] for place in bucket] for bucket in found]
        self.place = {p: index for index, bucket in enumerate(self.members) for p in bucket}
        self.buffers = [torch.empty(sum(p.numel() for p in b), dtype=b[0].dtype, device=b[0].device)
                        for b in self.members]  # fmt: skip
        self.parts = {p: part.view(p.shape) for bucket, buffer in zip(self.members, self.buffers, strict=True)
                      for p, part in zip(bucket, _parts(buffer, bucket), strict=True)}  # fmt: skip
        self._restart()

    def _restart(self) -> None:
        self.missing = [len(bucket) for bucket in self.members]
        self.works = [None] * len(self.members)
        self.waits = False

    def ready(self, parameter: nn.Parameter) -> None:
        """A gradient is there."""
        if not self.waits:
            self.waits = True
            after_backward(self.finish)
        index = self.place[parameter]
        if len(self.arrived) < len(self.parameters):
            self.arrived.append(parameter)
        assert parameter.grad is not None
        if not self.views or parameter.grad._base is not self.buffers[index]:
            with COPYING:
                torch.mul(parameter.grad, 1.0 / dist.get_world_size(self.group), out=self.parts[parameter])
        self.missing[index] -= 1
        if not self.missing[index]:
            self.works[index] = dist.all_reduce(self.buffers[index], group=self.group, async_op=True)

    def finish(self) -> None:
        for index, bucket in enumerate(self.members):
            work = self.works[index]
            if work is not None:
                work.wait()
            for parameter in bucket:
                if parameter.grad is not None and self.views:
                    parameter.grad = self.parts[parameter]
                elif parameter.grad is not None:
                    with COPYING:
                        parameter.grad.copy_(self.parts[parameter])
        if len(self.arrived) == len(self.parameters) and self.arrived is not self.parameters:
            self.parameters = self.arrived
            self._assign(self.arrived)
        self._restart()


def _init(
    self: DistributedDataParallel,
    module: nn.Module,
    _device_ids: Any = None,
    _output_device: Any = None,
    _dim: int = 0,
    broadcast_buffers: bool = True,
    _init_sync: bool = True,
    process_group: dist.ProcessGroup | None = None,
    bucket_cap_mb: float | None = None,
    gradient_as_bucket_view: bool = False,
    **_: Any,
) -> None:
    nn.Module.__init__(self)
    self.module = module
    self.require_backward_grad_sync = True
    self.broadcast_buffers = broadcast_buffers
    group = process_group
    buckets = _Buckets(module, group, bucket_cap_mb or 25.0, views=gradient_as_bucket_view)

    def arrived(parameter: Tensor) -> None:
        if self.require_backward_grad_sync:
            buckets.ready(parameter)  # type: ignore[arg-type]

    for parameter in buckets.parameters:
        parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]


def _forward(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
    floats = [b for b in self.module.buffers() if b.is_floating_point()] if self.broadcast_buffers else []
    if floats and self.training and self.require_backward_grad_sync and dist.get_world_size() > 1:
        whole = torch.cat([b.flatten() for b in floats])
        dist.broadcast(whole, 0)
    return self.module(*args, **kwargs)


@contextmanager
def python_replicas() -> Iterator[None]:
    parts: dict[str, Callable[..., Any]] = {"__init__": _init, "forward": _forward}
    with (
        swapped(DistributedDataParallel, "__init__", parts["__init__"]),
        swapped(DistributedDataParallel, "forward", parts["forward"]),
    ):
        yield
