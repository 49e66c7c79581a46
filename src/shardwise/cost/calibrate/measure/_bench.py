"""Times calls on one device: warm-up, then the median of batches long enough for the clock."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Call = Callable[[], object]
Point = dict[str, str | int | float]

MOST_BATCH = 500
"""calls in one batch at most"""


@dataclass(frozen=True)
class Bench:
    device: torch.device
    cache_bytes: float
    """buffers are rotated until together they are larger than this"""
    batch_s: float
    """length of one batch"""
    batches: int

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def seconds(self, calls: list[Call]) -> float:
        """Time of one call; `calls` do the same on different buffers and take turns."""
        for call in calls[:3]:
            call()
        once = self._batch(calls, len(calls)) / len(calls)
        count = max(len(calls), min(MOST_BATCH, int(self.batch_s / max(once, 1e-9)) + 1))
        return statistics.median(self._batch(calls, count) / count for _ in range(self.batches))

    def _batch(self, calls: list[Call], count: int) -> float:
        if not self.cuda:
            start = time.perf_counter()
            for i in range(count):
                calls[i % len(calls)]()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self.device)
        first.record()
        for i in range(count):
            calls[i % len(calls)]()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    def copies(self, bytes_: float) -> int:
        """How many buffers of this size it takes to leave the cache."""
        return max(1, min(32, int(self.cache_bytes // max(bytes_, 1.0)) + 1))

    def random(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Zeros would draw less power and run faster than a training step does."""
        return torch.randn(*shape, device=self.device, dtype=torch.float32).to(dtype)


def bench_on(device: str, *, quick: bool) -> Bench:
    where = torch.device(device)
    if where.type == "cuda":
        cache = float(torch.cuda.get_device_properties(where).L2_cache_size)
        return Bench(where, 2.0 * cache, 0.002 if quick else 0.008, 5 if quick else 9)
    return Bench(where, 8e6 if quick else 64e6, 0.004 if quick else 0.05, 3 if quick else 5)
