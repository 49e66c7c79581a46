"""What is read of runs: logs of every form, and a large trace in how much time and memory."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from shardwise.measured.diagnose.pace import series_of
from shardwise.programs.importers.logs import parse_log

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "importers"))
from log_samples import BATCH, GPUS, SAMPLES, TOKENS, log_of  # noqa: E402

TIMES = [24.0, 8.0, *([4.0, 4.04, 4.02, 3.98, 4.06] * 4)]
ROUNDED = 6e-3
"""nanotron prints three digits"""
KERNELS = 400
"""different names of kernels"""
PER_STEP = 4000
"""kernels of a step"""
READ = """
import resource, sys, time
from shardwise.show.cli import main
code = main(sys.argv[1:])
print("USED", time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
sys.exit(code)
"""


@dataclass(frozen=True)
class TraceRead:
    gb: float
    gb_s: float
    gb_cpu_s: float
    rss_bytes: int

    def __str__(self) -> str:
        return f"{self.gb_s:.3g} GB/s, {self.gb_cpu_s:.3g} GB a second of the processor, {self.rss_bytes / 1e6:,.0f} MB"


def log_formats() -> int:
    """Programs whose log comes back as it was written, junk between its lines."""
    right = set()
    for name, sample in SAMPLES.items():
        log = parse_log(log_of(name, TIMES))
        if log is not None and log.program == sample.title:
            found = series_of(log, TOKENS, GPUS, BATCH).seconds
            if len(found) == len(TIMES) and all(abs(a / b - 1) < ROUNDED for a, b in zip(found, TIMES, strict=True)):
                right.add(sample.title)
    return len(right)


def trace_read(folder: Path, gb: float) -> TraceRead:
    """In a process of its own, whose memory is then known."""
    path = folder / "rank0.json"
    size = write_trace(path, gb * 1e9)
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", READ, "why", str(path), "--json"], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    seconds = time.perf_counter() - began
    path.unlink()
    cpu_s, rss = ended.stdout.rsplit("USED", 1)[1].split()
    return TraceRead(size / 1e9, size / 1e9 / seconds, size / 1e9 / float(cpu_s), int(rss))


def write_trace(path: Path, most: float) -> int:
    """As torch.profiler writes one: of each kernel the operator, the launch and the kernel itself; a collective in
    every hundred."""
    head = ('{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],\n'
            '  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n  "traceEvents": [\n')  # fmt: skip
    size, number = len(head), 0
    with path.open("w", encoding="ascii") as file:
        file.write(head)
        while size < most:
            text = "".join(_events(number + place) for place in range(PER_STEP)) + _step(number)
            file.write(text)
            size, number = size + len(text), number + PER_STEP
        file.write('  {"ph": "i", "name": "Record Window End", "ts": 0.0}\n  ],"traceName": "rank0.json" }')
    return path.stat().st_size


def _step(number: int) -> str:
    return _event("user_annotation", f"ProfilerStep#{number // PER_STEP}", number * 10.0, PER_STEP * 10.0, 1, "")


def _events(number: int) -> str:
    at, joined = number * 10.0, f'"External id": {number}, "correlation": {number}'
    name = f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor<{number % KERNELS}>>(int, float)"
    more = ""
    if number % 100 == 99:
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        more = ', "Collective name": "allreduce", "Group size": 8, "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
    shapes = ('"Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[8192, 4096], [8192, 4096]], '
              f'"Ev Idx": {number}, {joined}')  # fmt: skip
    grid = '"device": 0, "context": 1, "stream": 7, "grid": [8192, 1, 1], "block": [128, 1, 1], "warps per SM": 248.2, '
    launch = _event("cuda_runtime", "cudaLaunchKernel", at + 2, 4.0, 1, joined)
    kernel = _event("kernel", name, at + 20, 9.0, 7, grid + joined + more)
    return _event("cpu_op", "aten::add", at, 8.0, 1, shapes) + launch + kernel


def _event(category: str, name: str, at: float, length: float, thread: int, told: str) -> str:
    head = f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {thread},\n'
    return head + f'    "ts": {at:.3f}, "dur": {length:.3f},\n    "args": {{\n      {told}\n    }}\n  }},\n'
