"""The Mamba-2 scan of Nemotron models timed on this GPU with mamba-ssm's kernels, beside what the planner says.

    pip install mamba-ssm einops      (the Triton kernels are enough: MAMBA_SKIP_CUDA_BUILD=TRUE)
    python benchmarks/scan.py [--out FILE.csv]

Bytes are the planner's count (work/mamba.py); GB/s per SM is those bytes over the measured time and the number of
multiprocessors, the quantity that `scan_bytes_per_sm_s` states. Medians of 20 after a warm-up, random inputs, bf16.
"""

import argparse
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from _timed_rows import write_rows
from shardwise.arch import model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.model import Mamba
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import stack_of
from shardwise.work.layout import layout_of
from shardwise.work.mamba import mamba_work

SHAPES = [
    (name, tp, sequences, seq)
    for name in ("nemotron-3-nano", "nemotron-3-super", "nemotron-h-56b", "nemotron-nano-9b-v2")
    for tp, sequences, seq in ((1, 1, 8192), (1, 2, 4096), (1, 4, 8192), (2, 1, 8192), (4, 1, 8192), (8, 1, 8192))
]
WARM, REPEATS = 5, 20


class Timed(NamedTuple):
    model: str
    tp: int
    sequences: int
    seq: int
    forward_bytes: float
    backward_bytes: float
    forward_s: float
    backward_s: float


def scan_function() -> Callable[..., Any]:
    """mamba-ssm's scan without the package's own start, which wants its compiled parts."""
    found = importlib.util.find_spec("mamba_ssm")
    if found is None or not found.submodule_search_locations:
        raise ImportError("mamba-ssm is not installed: MAMBA_SKIP_CUDA_BUILD=TRUE pip install mamba-ssm einops")
    package = types.ModuleType("mamba_ssm")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["mamba_ssm"] = package
    return importlib.import_module("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined  # type: ignore[no-any-return]


def mamba_of(name: str) -> Mamba:
    return next(kind.mamba for kind in model_of(name).kinds if kind.mamba is not None)


def counted(name: str, tp: int, sequences: int, seq: int) -> tuple[float, float]:
    model = model_of(name)
    job = Job(seq=seq, global_batch=sequences)
    layout = layout_of(model, job, Policies.of([Policy(tp=tp, micro_batch=sequences)]))
    scan = mamba_work(model, mamba_of(name), layout, precision_of("bf16")).scan
    assert scan is not None
    return float(np.ravel(scan.forward_bytes)[0]), float(np.ravel(scan.backward_bytes)[0])


def timed(scan: Callable[..., Any], name: str, tp: int, sequences: int, seq: int) -> Timed:
    import torch

    mamba = mamba_of(name)
    heads, groups = mamba.heads // tp, max(mamba.groups // tp, 1)

    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()

    x = random(sequences, seq, heads, mamba.head_dim)
    dt = random(sequences, seq, heads)
    a = (-torch.rand(heads, device="cuda") - 0.5).requires_grad_()
    b, c = (random(sequences, seq, groups, mamba.state) for _ in range(2))
    d, bias = random(heads, dtype=torch.float32), random(heads, dtype=torch.float32)
    inputs = [x, dt, a, b, c, d, bias]
    gradient = torch.randn_like(x)

    forward, backward = [], []
    for _ in range(WARM + REPEATS):
        start, between, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        start.record()
        out = scan(x, dt, a, b, c, mamba.chunk, D=d, dt_bias=bias, dt_softplus=True)
        between.record()
        torch.autograd.grad(out, inputs, gradient)
        end.record()
        torch.cuda.synchronize()
        forward.append(start.elapsed_time(between) / 1e3)
        backward.append(between.elapsed_time(end) / 1e3)
    moved = counted(name, tp, sequences, seq)
    return Timed(name, tp, sequences, seq, *moved, median(forward[WARM:]), median(backward[WARM:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the times as CSV")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: the scan can only be timed on a GPU")
        scan = scan_function()
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    properties = torch.cuda.get_device_properties(0)
    stated = stack_of("megatron-core").scan_bytes_per_sm_s / 1e9
    print(f"{properties.name}, {properties.multi_processor_count} SMs; planner: {stated:g} GB/s per SM")
    print(f"{'model':<20} {'tp':>3} {'tokens':>7} {'fwd ms':>8} {'GB/s/SM':>8} {'bwd ms':>8} {'GB/s/SM':>8}")
    found = []
    for shape in SHAPES:
        one = timed(scan, *shape)
        found.append(one)
        pairs = ((one.forward_bytes, one.forward_s), (one.backward_bytes, one.backward_s))
        ahead, back = (moved / seconds / properties.multi_processor_count / 1e9 for moved, seconds in pairs)
        print(
            f"{one.model:<20} {one.tp:>3} {one.sequences * one.seq:>7} {1e3 * one.forward_s:8.3f} {ahead:8.2f} "
            f"{1e3 * one.backward_s:8.3f} {back:8.2f}",
            flush=True,
        )
    if given.out:
        write_rows(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
