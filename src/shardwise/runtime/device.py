"""One rank's steps on a GPU, by the GPU's own clock and allocator; also one rank of a world that is only pretended.

In a pretended world nothing is sent: what torch copies in place of a message is timed apart and left out, and what
would have arrived is filled with numbers of an ordinary size, since kernels run at another pace on nothing but zeros.
"""

import gc
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import torch
from msgspec import Struct

from shardwise.runtime.parallel.comm import Comm
from shardwise.runtime.pretend import fake_world
from shardwise.runtime.train.loop import Trainer
from shardwise.runtime.train.task import Order

WARM_UP = 3
MESSAGES = (
    "all_reduce", "gathered", "scattered", "exchanged", "start_all_reduce", "start_gather", "start_scatter",
    "start_send", "received", "passed_on",
)  # fmt: skip
Marks = list[tuple[torch.cuda.Event, torch.cuda.Event]]


class OnDevice(Struct, frozen=True, kw_only=True):
    step_s: float
    """median, messages of a pretended world left out"""
    spread: float
    """(longest - shortest) / median"""
    messages_s: float
    """what was left out of each step"""
    peak_bytes: int
    """most that was allocated at once"""
    reserved_bytes: int


def measured_on_device(order: Order, steps: int, *, rank: int | None = None) -> OnDevice:
    """`rank`: of the pretended world that the policy asks for; None: the whole world is this process."""
    forget()
    device = torch.device("cuda", torch.cuda.current_device())
    with nullcontext() if rank is None else fake_world(rank, order.task.policy.gpus):
        trainer = Trainer(order, device)
        marks: Marks = []
        if rank is not None:
            time_apart(trainer.engine.world.comm, marks)
        for _ in range(WARM_UP):
            trainer.one_step()
        torch.cuda.reset_peak_memory_stats()
        seconds, left_out = [], []
        for _ in range(steps):
            marks.clear()
            torch.cuda.synchronize()
            start = perf_counter()
            trainer.one_step()
            torch.cuda.synchronize()
            messages = sum(a.elapsed_time(b) for a, b in marks) * 1e-3
            left_out.append(messages)
            seconds.append(perf_counter() - start - messages)
            trainer.engine.world.comm.events.clear()
            trainer.engine.pipeline.done.clear()
        peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        del trainer
    forget()
    middle = statistics.median(seconds)
    return OnDevice(
        step_s=middle, spread=(max(seconds) - min(seconds)) / middle, messages_s=statistics.median(left_out),
        peak_bytes=peaks[0], reserved_bytes=peaks[1],
    )  # fmt: skip


def forget() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def time_apart(comm: Comm, marks: Marks) -> None:
    for name in MESSAGES:
        setattr(comm, name, _between_marks(name, getattr(comm, name), marks))


def _between_marks(name: str, send: Callable[..., Any], marks: Marks) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        found = send(*args, **kwargs)
        _fill(name, found, args)
        end.record()
        marks.append((begin, end))
        return found

    return call


def _fill(name: str, found: Any, args: tuple[Any, ...]) -> None:
    """torch's pretended reductions and receipts leave their target as it was."""
    if name in ("received", "passed_on"):
        found.normal_()
    elif name == "scattered":
        found.copy_(args[0][: len(found)])
    elif name == "start_scatter":
        target, source = args[0], args[1]
        target.copy_(source.flatten()[: target.numel()].view_as(target))


def device_name() -> str:
    return str(torch.cuda.get_device_name())
