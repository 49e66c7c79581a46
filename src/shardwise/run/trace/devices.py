"""CUDA means the CPU: what a script asks of GPUs is answered as a machine that has them would."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from shardwise.run.runtime.private import swapped
from shardwise.run.trace.on_host import mark_made, mark_moved
from shardwise.run.trace.values import ARE_ALL

RANKS_OF_A_NODE = 8
GIB = 2**30
HOPPER = SimpleNamespace(name="traced", major=9, minor=0, total_memory=80 * GIB, multi_processor_count=132)
ANSWERS: dict[str, object] = {
    "is_available": False, "current_device": 0, "device_count": RANKS_OF_A_NODE, "is_bf16_supported": True,
    "get_device_capability": (HOPPER.major, HOPPER.minor), "get_device_name": HOPPER.name,
    "get_device_properties": HOPPER, "mem_get_info": (HOPPER.total_memory, HOPPER.total_memory), "memory_summary": "",
    "max_memory_allocated": 0, "memory_allocated": 0, "max_memory_reserved": 0, "memory_reserved": 0,
    "memory_stats": {}, "set_device": None, "synchronize": None, "empty_cache": None, "ipc_collect": None,
    "manual_seed": None, "manual_seed_all": None, "reset_peak_memory_stats": None,
}  # fmt: skip
"""of functions of torch.cuda"""
TO_THE_SCRIPT: dict[Any, dict[str, object]] = {
    torch.cuda: {"is_available": True},
    torch.accelerator: {"is_available": True, "device_count": RANKS_OF_A_NODE, "set_device_index": None,
                        "current_accelerator": torch.device("cuda"), "current_device_index": 0, "synchronize": None},
}  # fmt: skip
"""what libraries are not told: they would go on to kernels that are not there"""
ASKS_FOR_HEALTH = (torch.isfinite, torch.Tensor.isfinite)
"""every number is a healthy one"""
LAUNCHERS = frozenset({"accelerate"})
"""libraries that only place and wrap what the script has made"""
OF_TYPES = frozenset({"is_torch_bf16_gpu_available"})
"""functions of transformers that ask for no more than which types its Trainer may use"""
LIBRARIES = frozenset({"site-packages", "dist-packages"})


class Idle:
    """Stands for a stream or an event: whatever is asked of it is done at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def elapsed_time(self, _: Any) -> float:
        return 1.0


class CudaIsCpu(TorchFunctionMode):
    """Every tensor made on or moved to a CUDA device is one of the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            mark_moved(args[0])
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.device and numbered_on_cpu(args[0]) == "cpu":
            return torch.device("cpu")
        if func is torch.Tensor.__format__ and not args[0].dim():
            return format(args[0].item(), args[1])
        if func is torch.Tensor.to:
            args = (args[0], *map(numbered_on_cpu, args[1:2]), *args[2:])
        found = func(*map(on_cpu, args), **_named_on_cpu(kwargs or {}))
        if func is torch.Tensor.to:
            mark_moved(found)
        mark_made(func, kwargs, found)
        if func in ASKS_FOR_HEALTH:
            setattr(found, ARE_ALL, True)
        return found


def on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


def numbered_on_cpu(value: Any) -> Any:
    """Where a number can only be that of a GPU."""
    return "cpu" if isinstance(value, int) and not isinstance(value, bool) else on_cpu(value)


def _named_on_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: numbered_on_cpu(value) if name == "device" else on_cpu(value) for name, value in kwargs.items()}


def with_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*map(on_cpu, args), **_named_on_cpu(kwargs))

    return called


def always(answer: object) -> Callable[..., Any]:
    return lambda *_, **__: answer


@contextmanager
def gpus_of(folder: Path) -> Iterator[None]:
    """As many as a node has; `folder`: where the script lies."""
    moves = nn.Module.to

    def moved(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        return moves(module, *map(numbered_on_cpu, args[:1]), *args[1:], **_named_on_cpu(kwargs))

    with ExitStack() as stack:
        for name, answer in ANSWERS.items():
            stack.enter_context(swapped(torch.cuda, name, always(answer)))
        for owner, answers in TO_THE_SCRIPT.items():
            for name, answer in answers.items():
                asked = _asked_by(folder.resolve(), answer, getattr(owner, name))
                stack.enter_context(swapped(owner, name, asked))
        for name in ("Stream", "Event"):
            stack.enter_context(swapped(torch.cuda, name, Idle))
        for name in ("current_stream", "default_stream"):
            stack.enter_context(swapped(torch.cuda, name, Idle))
        for name in ("stream", "device"):
            stack.enter_context(swapped(torch.cuda, name, always(nullcontext())))
        for name in ("range_push", "range_pop", "mark"):
            stack.enter_context(swapped(torch.cuda.nvtx, name, always(None)))
        stack.enter_context(swapped(torch.cuda.nvtx, "range", always(nullcontext())))
        stack.enter_context(swapped(nn.Module, "to", moved))
        stack.enter_context(CudaIsCpu())
        yield


def _asked_by(folder: Path, answer: object, others: Callable[..., Any]) -> Callable[..., Any]:
    """The answer for code that lies with the script or starts it, that of `others` for all other."""

    @cache
    def is_told(code: CodeType) -> bool:
        place = Path(code.co_filename).resolve()
        library = not place.is_relative_to(folder) or not LIBRARIES.isdisjoint(place.parts)
        return not library or not LAUNCHERS.isdisjoint(place.parts) or code.co_name in OF_TYPES

    def asked(*args: Any, **kwargs: Any) -> Any:
        return answer if is_told(sys._getframe(1).f_code) else others(*args, **kwargs)

    return asked
