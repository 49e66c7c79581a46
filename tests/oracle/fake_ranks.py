"""One process that believes to be rank 0 of many: collectives run on torch's fake process group and are recorded."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

WORLD = 16


@contextmanager
def fake_world(size: int = WORLD) -> Iterator[dict[int, Any]]:
    """Process groups of rank 0 by size."""
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        sizes = [n for n in range(1, size + 1) if size % n == 0]
        yield {n: dist.new_group(list(range(n))) for n in sizes}
    finally:
        dist.destroy_process_group()


_OPS = {
    # name of the torch operation -> (ours, which argument has the buffer we count)
    "allreduce_": ("all_reduce", 0),
    "_allgather_base_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "alltoall_base_": ("all_to_all", 1),
    "send": ("send", 0),
}
_SILENT = ("recv_", "barrier")


class Recorder(TorchDispatchMode):
    """(operation, bytes) of every collective; bytes as in the collectives' contract."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, float]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func.name().partition("::")
        name = name.split(".")[0]
        if namespace == "c10d" and name not in _SILENT:
            op, place = _OPS[name]
            found = args[place]
            tensors = [found] if isinstance(found, torch.Tensor) else found
            self.calls[op, float(sum(t.numel() * t.element_size() for t in tensors))] += 1
        return func(*args, **(kwargs or {}))


def by_op(calls: Counter[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    """operation -> (calls, bytes in all)"""
    found: dict[str, tuple[int, float]] = {}
    for (op, size), count in calls.items():
        times, total = found.get(op, (0, 0.0))
        found[op] = (times + count, total + size * count)
    return found
