"""What a nearly full GPU costs: a pipeline stage's micro-batches under ever less memory, timed on this GPU.

    python evidence/headroom.py [--out FILE.csv] [--layers 9] [--micro-batch 4]

Several micro-batches are in flight as on the first stage of a 1F1B pipeline; gradients are added to fp32 buffers. The
allocator is given the peak of live tensors and so much more (`set_per_process_memory_fraction`: it then refuses, waits,
gives memory back and fetches it anew as it would on a full device). Retries are those of the allocator's own count.
`late`: every split product's input is gathered on a second stream, as tensor parallelism does, which holds the freed
buffer until that stream is seen to have passed it.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from _timed_rows import write_rows

HIDDEN, HEADS, FFN, SEQ = 3072, 32, 12288, 4096
PEERS = 8
"""ranks whose parts a gathered input is made of"""
HEADROOMS = (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)
MICRO_BATCHES = 8


class Row(NamedTuple):
    in_flight: int
    late: bool
    headroom: float
    """memory beyond the peak of live tensors, as a share of it; infinite: all there is"""
    live_gib: float
    reserved_gib: float
    retries: float
    """per micro-batch"""
    seconds: float
    """per micro-batch"""


class Late:
    """A gather stands in for the exchange: a copy on the communication stream, waited for and recorded as such."""

    def __init__(self, on: bool) -> None:
        self.stream = torch.cuda.Stream() if on else None

    def __call__(self, x: Tensor) -> Tensor:
        if self.stream is None:
            return x
        with torch.no_grad():
            gathered = torch.empty((PEERS, *x.shape), dtype=x.dtype, device=x.device)
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                gathered[0].copy_(x)
            gathered.record_stream(self.stream)
            torch.cuda.current_stream().wait_stream(self.stream)
        return x


class Layer(nn.Module):
    def __init__(self, late: Late) -> None:
        super().__init__()
        self.late = late
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, 2 * FFN, bias=False), nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        q, k, v = self.qkv(self.late(self.norms[0](x))).view(batch, SEQ, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        core = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(core.transpose(1, 2).reshape(x.shape))
        gate, up = self.up(self.late(self.norms[1](x))).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def step(stage: nn.Module, sums: list[Tensor], in_flight: int, micro_batch: int) -> None:
    """One step of a first stage: a forward for every backward once so many are in flight."""
    waiting: deque[Tensor] = deque()
    for number in range(MICRO_BATCHES + in_flight - 1):
        if number < MICRO_BATCHES:
            waiting.append(stage(torch.randn(micro_batch, SEQ, HIDDEN, device="cuda", dtype=torch.bfloat16)))
        if number >= in_flight - 1:
            output = waiting.popleft()
            output.backward(torch.randn_like(output))
            del output
            for sum_, parameter in zip(sums, stage.parameters(), strict=True):
                assert parameter.grad is not None
                sum_ += parameter.grad
                parameter.grad = None


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Seconds and retries per micro-batch, of one step after one that warms up."""
    run()
    torch.cuda.synchronize()
    before, begin = torch.cuda.memory_stats().get("num_alloc_retries", 0), time.perf_counter()
    run()
    torch.cuda.synchronize()
    retries = torch.cuda.memory_stats().get("num_alloc_retries", 0) - before
    return (time.perf_counter() - begin) / MICRO_BATCHES, retries / MICRO_BATCHES


def rows(in_flight: int, late: bool, layers: int, micro_batch: int) -> Iterator[Row]:
    gathers = Late(late)
    stage = nn.Sequential(*(Layer(gathers) for _ in range(layers))).to("cuda", torch.bfloat16)
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in stage.parameters()]
    there = torch.cuda.get_device_properties(0).total_memory

    def measured(headroom: float, live: float) -> Row:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        seconds, retries = timed(lambda: step(stage, sums, in_flight, micro_batch))
        live = live or torch.cuda.max_memory_allocated()
        reserved = torch.cuda.max_memory_reserved()
        return Row(in_flight, late, headroom, live / 2**30, reserved / 2**30, retries, seconds)

    torch.cuda.set_per_process_memory_fraction(1.0)
    free = measured(float("inf"), 0.0)
    yield free
    for headroom in HEADROOMS:
        torch.cuda.set_per_process_memory_fraction(min(free.live_gib * 2**30 * (1 + headroom) / there, 1.0))
        try:
            yield measured(headroom, free.live_gib * 2**30)
        except torch.OutOfMemoryError:
            yield Row(in_flight, late, headroom, free.live_gib, float("nan"), float("nan"), float("nan"))
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows there as CSV")
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--micro-batch", type=int, default=4)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("headroom: needs a CUDA GPU", file=sys.stderr)
        return 2
    found: list[Row] = []
    print(f"{'in flight':>9} {'late':>5} {'headroom':>8} {'live':>7} {'reserved':>8} {'retries':>8} {'s':>7}")
    for in_flight, late in ((1, False), (2, False), (4, False), (1, True), (4, True)):
        for row in rows(in_flight, late, given.layers, given.micro_batch):
            found.append(row)
            print(f"{row.in_flight:>9} {row.late!s:>5} {row.headroom:8.0%} {row.live_gib:7.1f} {row.reserved_gib:8.1f} "
                  f"{row.retries:8.1f} {row.seconds:7.3f}", flush=True)  # fmt: skip
        torch.cuda.empty_cache()
    if given.out is not None:
        write_rows(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
