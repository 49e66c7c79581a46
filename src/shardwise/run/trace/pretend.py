"""Lets a script written for many GPUs run in one process without any: the process group is there, kernels are CUDA's.

What cannot be traced is refused here by name, with what to write instead.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.cuda.amp.common import amp_definitely_not_available
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh
from torch.multiprocessing.spawn import spawn

from shardwise.run.runtime.fake_world import fake_world
from shardwise.run.runtime.private import (
    convertible_modules,
    lists_of_tensors,
    quiet_addresses,
    real_loaders,
    real_meshes,
    static_pipelines,
    swapped,
    swapped_everywhere,
    taken_for_real,
)
from shardwise.run.trace.attention import attention_as_on_cuda
from shardwise.run.trace.autocast import autocast_as_on_cuda
from shardwise.run.trace.devices import RANKS_OF_A_NODE, always, gpus_of, with_cpu
from shardwise.run.trace.replicas import python_replicas
from shardwise.run.trace.rms_norm import fused_as_on_cuda
from shardwise.run.trace.sync_norm import synced_forward
from shardwise.run.trace.values import picked

OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
           "recv_object_list")  # fmt: skip


class Untraceable(Exception):
    """What the script does has no meaning in a traced step."""


@contextmanager
def pretended_world(rank: int, world: int) -> Iterator[None]:
    """A process group of so many ranks and tensors without values; this process is one of the ranks."""

    def prepared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        shape = kwargs["mesh_shape"] if "mesh_shape" in kwargs else args[1]
        if 0 in shape or prod(shape) > world:
            ranks = prod(max(size, 1) for size in shape)
            raise Untraceable(f"the mesh {tuple(shape)} needs more than {world} ranks; write --world {ranks} or more")
        return args

    with ExitStack() as stack:
        mode = stack.enter_context(fake_world(rank, world, values=False))
        assert mode is not None
        stack.enter_context(swapped(sys, "excepthook", sys.excepthook))  # a new process group wraps it
        for name, function in list(vars(nn.init).items()):
            if name.endswith("_") and not name.startswith("_"):
                # some of them look at values, and there is nothing to fill
                stack.enter_context(swapped_everywhere(function, _unfilled))
        for part in (
            real_meshes(prepared),
            static_pipelines(),
            real_loaders(),
            convertible_modules(mode),
            taken_for_real(),
            quiet_addresses(),
        ):
            stack.enter_context(part)
        yield


@contextmanager
def no_gpu_needed(rank: int, world: int, compiled: Callable[[Any], Any], folder: Path) -> Iterator[None]:
    """torchrun's environment, and every call that needs CUDA, an own process group or a compiler answered here."""

    def uncompiled(model: Any = None, **_: Any) -> Any:
        return compiled if model is None else compiled(model)

    def unchanged(model: Any, *_: Any, **__: Any) -> None:
        compiled(model)

    with ExitStack() as stack:
        stack.enter_context(_environment(rank, world))
        for function in (dist.init_process_group, dist.destroy_process_group):
            stack.enter_context(swapped_everywhere(function, always(None)))
        stack.enter_context(swapped_everywhere(spawn, _this_rank_alone(rank)))
        for name in OBJECTS:
            function = getattr(dist, name)
            why = f"{name} sends Python objects, whose values a traced step does not have; leave it out of the step"
            stack.enter_context(swapped_everywhere(function, _refusing(why)))
        stack.enter_context(python_replicas())
        stack.enter_context(swapped(torch.nn.SyncBatchNorm, "forward", synced_forward))
        stack.enter_context(swapped_everywhere(torch.compile, uncompiled))
        stack.enter_context(swapped(torch.nn.Module, "compile", unchanged))
        for owner in (DeviceMesh, torch.autocast):
            stack.enter_context(swapped(owner, "__init__", with_cpu(owner.__init__)))
        for placing in (torch.set_default_device, device_mesh.init_device_mesh):
            stack.enter_context(swapped_everywhere(placing, with_cpu(placing)))
        stack.enter_context(swapped_everywhere(amp_definitely_not_available, always(False)))
        stack.enter_context(swapped_everywhere(F.one_hot, _one_hot))
        stack.enter_context(swapped_everywhere(F.dropout, _fused_dropout(F.dropout)))
        attends = F.scaled_dot_product_attention
        stack.enter_context(swapped_everywhere(attends, attention_as_on_cuda(attends)))
        stack.enter_context(autocast_as_on_cuda())
        stack.enter_context(lists_of_tensors())
        for norm in (F.rms_norm, torch.rms_norm):
            stack.enter_context(swapped_everywhere(norm, fused_as_on_cuda(norm)))
        for grouped in (F.group_norm, torch.group_norm):
            stack.enter_context(swapped_everywhere(grouped, _channels_apart(grouped)))
        stack.enter_context(gpus_of(folder))
        yield


def _unfilled(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    return tensor


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """As CUDA does it; a CPU would look for indices out of range."""
    if num_classes < 0:
        raise Untraceable("one_hot without num_classes needs the largest value; write num_classes=...")
    hot = tensor.new_zeros((*tensor.shape, num_classes))
    hot.scatter_(-1, tensor.unsqueeze(-1), 1)
    return picked(hot, num_classes)


def _fused_dropout(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """CUDA's one kernel keeps a byte an element; a CPU keeps a mask as wide as the input."""

    def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or inplace or not 0.0 < p < 1.0:
            return original(input, p, training, inplace)
        dropped: Tensor = torch.native_dropout(input, p, True)[0]
        return dropped

    return dropout


def _channels_apart(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """CUDA's group norm knows one layout: what has its channels next to each other is copied first, widened if autocast
    widens it (aten/src/ATen/native/group_norm.cpp). A CPU normalises either."""

    def group_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not input.is_contiguous():
            input = (input.float() if torch.is_autocast_enabled("cpu") else input).contiguous()
        return original(input, *args, **kwargs)

    return group_norm


def _this_rank_alone(rank: int) -> Callable[..., None]:
    """A script that starts its ranks itself starts this one."""

    def started(fn: Callable[..., Any], args: tuple[Any, ...] = (), *_: Any, **__: Any) -> None:
        fn(rank % RANKS_OF_A_NODE, *args)

    return started


def _refusing(why: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise Untraceable(why)

    return refuse


@contextmanager
def _environment(rank: int, world: int) -> Iterator[None]:
    told = {
        "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % RANKS_OF_A_NODE, "MASTER_PORT": 29500,
        "LOCAL_WORLD_SIZE": min(world, RANKS_OF_A_NODE), "MASTER_ADDR": "localhost",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in told}
    os.environ.update({name: str(value) for name, value in told.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
