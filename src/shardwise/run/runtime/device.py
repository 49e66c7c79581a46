"""One rank's steps on a GPU, by the GPU's own clock and allocator; also one rank of a world that is only pretended.

In a pretended world nothing is sent. What would have arrived is filled with numbers of an ordinary size, since kernels
run at another pace on zeros, and the time is the sum of the rank's own kernels: copies that torch makes in place of
messages are left out, and the host, which works for one rank of many here, does not count.
"""

import gc
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import torch
import torch._dynamo
from msgspec import Struct
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from shardwise.run.runtime.fake_world import fake_world
from shardwise.run.runtime.parallel.comm import RankComm
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.task import TrainingOrder
from shardwise.spec.policy import Policy

WARM_UP = 3
ARRIVES = ("received", "passed_on", "scattered", "start_scatter")
"""messages whose pretended form leaves its target as it was"""
STAND_INS = ("Memcpy", "distribution_elementwise")
"""kernels that stand for messages: copies, and the numbers below"""


class OnDevice(Struct, frozen=True, kw_only=True):
    device: str
    step_s: float
    """median, by the clock"""
    spread: float
    """(longest - shortest) / median"""
    kernels_s: float
    """sum over the kernels of one step, stand-ins for messages left out"""
    peak_bytes: int
    """most that was allocated at once"""
    reserved_bytes: int


def needs_gpu(policy: Policy, fake: bool) -> None:
    if not torch.cuda.is_available():
        raise ValueError("device: this machine has no CUDA device; write --device cpu")
    if policy.gpus > 1 and not fake:
        raise ValueError(
            f"device: one GPU is measured, the policy has {policy.gpus:,} ranks; write --fake for one of them"
        )


def measured_on_device(order: TrainingOrder, steps: int, *, rank: int | None = None) -> OnDevice:
    """`rank`: of the pretended world that the policy asks for; None: the whole world is this process."""
    _forget()
    device = torch.device("cuda", torch.cuda.current_device())
    with nullcontext() if rank is None else fake_world(rank, order.task.policy.gpus):
        trainer = Trainer(order, device)
        if rank is not None:
            fill_what_arrives(trainer.engine.world.comm)
        for _ in range(WARM_UP):
            _step(trainer)
        torch.cuda.reset_peak_memory_stats()
        seconds = [_step(trainer) for _ in range(steps)]
        peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        kernels = _kernels_s(trainer)
        del trainer
    _forget()
    middle = statistics.median(seconds)
    return OnDevice(
        device=torch.cuda.get_device_name(), step_s=middle, spread=(max(seconds) - min(seconds)) / middle,
        kernels_s=kernels, peak_bytes=peaks[0], reserved_bytes=peaks[1],
    )  # fmt: skip


def _step(trainer: Trainer) -> float:
    torch.cuda.synchronize()
    start = perf_counter()
    trainer.one_step()
    torch.cuda.synchronize()
    trainer.engine.world.comm.events.clear()
    trainer.engine.pipeline.done.clear()
    return perf_counter() - start


def _kernels_s(trainer: Trainer) -> float:
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        _step(trainer)
    return 1e-6 * sum(
        float(event.device_time_total)
        for event in found.events()
        if event.device_type == DeviceType.CUDA
        and not event.is_user_annotation
        and not any(name in event.name for name in STAND_INS)
    )


def _forget() -> None:
    """Also what was compiled: every call looks through all shapes there are kernels for."""
    gc.collect()
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def fill_what_arrives(comm: RankComm) -> None:
    for name in ARRIVES:
        setattr(comm, name, _filled(name, getattr(comm, name)))


def _filled(name: str, send: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        found = send(*args, **kwargs)
        if name == "scattered":
            found.copy_(args[0][: len(found)])
        elif name == "start_scatter":
            target, source = args[0], args[1].flatten()
            if target.data_ptr() != source.data_ptr():
                target.copy_(source[: target.numel()].view_as(target))
        else:
            found.normal_()
        return found

    return call
