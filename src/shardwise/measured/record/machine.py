"""What this process holds and has computed, and where it stands among the ranks, without importing torch."""

import os
import resource
import socket
import sys
from time import process_time, time
from typing import Any

from shardwise.measured.record.step import RecordHead


def torch_if_loaded() -> Any:
    """A loop that uses torch has imported it."""
    return sys.modules.get("torch")


def on_cuda() -> bool:
    torch = torch_if_loaded()
    return bool(torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized())


def held_bytes() -> int | None:
    """On the device now, else resident."""
    if on_cuda():
        return int(torch_if_loaded().cuda.memory_allocated())
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def peak_bytes() -> int:
    if on_cuda():
        return int(torch_if_loaded().cuda.max_memory_allocated())
    # Linux counts in KiB, macOS in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def cpu_seconds() -> float:
    return process_time()


def pressure_seconds() -> float | None:
    """Since this machine's start: in which some process that could have run waited for a processor. None where the
    kernel does not count it."""
    try:
        with open("/proc/pressure/cpu", "rb") as file:
            return int(file.readline().rsplit(b"total=", 1)[1]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def queued_seconds() -> float | None:
    """In which this thread could have run and had no processor. None where the kernel does not count it."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def rank_here() -> tuple[int, int]:
    """By the process group if there is one, else by the launcher's environment."""
    torch = torch_if_loaded()
    group = getattr(torch, "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return int(group.get_rank()), int(group.get_world_size())
    return _number("RANK", 0), max(_number("WORLD_SIZE", 1), 1)


def head_here(**more: Any) -> RecordHead:
    rank, ranks = rank_here()
    facts: dict[str, Any] = {
        "rank": rank, "ranks": ranks, "host": socket.gethostname(), "pid": os.getpid(), "at_s": time(),
        "device": "cuda" if on_cuda() else "cpu",
    }  # fmt: skip
    return RecordHead(**(facts | more))


def _number(name: str, other: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else other
