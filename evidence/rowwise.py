"""Products in fp8 with one scale for each row against one for the whole tensor, timed on this GPU.

    python evidence/rowwise.py [--out FILE.csv]

A linear layer's three products with the casts they need, compiled as a training program compiles them (torchao's
recipes: scales found as the step goes; of whole tensors fast accumulation in the forward pass only, of rows in all
three; rows are scaled along the dimension each product sums over, so an operand of two products is rounded twice).
Medians after a warm-up, random inputs; beside them what the planner says for an H200.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from _timed_rows import write_rows
from shardwise.cost.calibrate.measure._bench import bench_on
from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import machine_for
from shardwise.step.estimate.layers import gemm_passes
from shardwise.work.case import case_of
from shardwise.work.ops import Gemm

SHAPES = {
    "llama-3-8b": [(16384, n, k) for n, k in ((4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336))],
    "llama-3-8b tp8": [(98304, n, k) for n, k in ((512, 4096), (4096, 512), (1792, 4096), (4096, 1792))],
    "llama-3-70b": [(8192, n, k) for n, k in ((8192, 8192), (1024, 8192), (28672, 8192), (8192, 28672))],
    "llama-3.1-405b tp8": [(8192, n, k) for n, k in ((2048, 16384), (16384, 2048), (6656, 16384), (16384, 6656))],
}
E4M3 = torch.float8_e4m3fn
LARGEST = torch.finfo(E4M3).max


class Timed(NamedTuple):
    shape: str
    m: int
    n: int
    k: int
    bf16_s: float
    tensor_s: float
    row_s: float


def by_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax().float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(E4M3), scale


def by_row(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(E4M3), scale


def product(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], fast: bool) -> Tensor:
    """a times b transposed; `b` has its rows scaled like those of `a`."""
    scale_b = b[1] if b[1].dim() == 0 else b[1].t()
    return torch._scaled_mm(a[0], b[0].t(), a[1], scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)


def of_tensors(x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x8, w8, g8 = by_tensor(x), by_tensor(w), by_tensor(g)

    def turned(a: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return a[0].t().contiguous(), a[1]

    return product(x8, w8, True), product(g8, turned(w8), False), product(turned(g8), turned(x8), False)


def of_rows(x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    def turned(a: Tensor) -> tuple[Tensor, Tensor]:
        return by_row(a.t().contiguous())

    forward = product(by_row(x), by_row(w), True)
    return forward, product(by_row(g), turned(w), True), product(turned(g), turned(x), True)


def plain(x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x @ w.t(), g @ w, g.t() @ x


def planned(m: int, n: int, k: int, by_row: bool) -> float:
    """What the planner says of the same three products on an H200."""
    job = Job(seq=m, global_batch=1, precision=PRECISIONS["fp8-rowwise" if by_row else "fp8"])
    any_model = model_of("llama-3-8b")  # the products are given: a case needs one all the same
    case = case_of(any_model, cluster_from("h200", 1, 1), job, stack_of("torchtitan"))
    machine = machine_for(case, Policies.of([Policy()]))
    return float(sum(np.sum(seconds) for seconds in gemm_passes(Gemm("", m, n, k), machine)))


def timed(shape: str, m: int, n: int, k: int) -> Timed:
    torch._dynamo.reset()
    x, w, g = (torch.randn(*size, device="cuda", dtype=torch.bfloat16) for size in ((m, k), (n, k), (m, n)))
    tensors, rows = (torch.compile(function, dynamic=False) for function in (of_tensors, of_rows))
    for found, meant in zip(rows(x, w, g), plain(x, w, g), strict=True):
        error = float((found.float() - meant.float()).norm() / meant.float().norm())
        assert error < 0.06, f"{shape} {m} {n} {k}: relative error {error:.3f}"
    bench = bench_on("cuda", quick=False)
    return Timed(shape, m, n, k, *(bench.seconds([partial(f, x, w, g)]) for f in (plain, tensors, rows)))


def dearer(of: list[Timed]) -> float:
    """Time with scales of rows over that with scales of tensors."""
    return sum(one.row_s for one in of) / sum(one.tensor_s for one in of)


def dearer_planned(of: list[Timed]) -> float:
    rows, tensors = (sum(planned(one.m, one.n, one.k, by_row) for one in of) for by_row in (True, False))
    return rows / tensors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows there as CSV")
    given = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        print("rowwise: needs a CUDA GPU of compute capability 9.0 or more", file=sys.stderr)
        return 2
    found = []
    print(f"{'':<20} {'m':>7} {'n':>6} {'k':>6} {'bf16 ms':>8} {'tensor':>7} {'row':>7} {'row/tensor':>10}")
    for shape, sizes in SHAPES.items():
        mine = [timed(shape, *size) for size in sizes]
        for one in mine:
            print(f"{shape:<20} {one.m:>7} {one.n:>6} {one.k:>6} {1e3 * one.bf16_s:8.3f} {1e3 * one.tensor_s:7.3f} "
                  f"{1e3 * one.row_s:7.3f} {one.row_s / one.tensor_s:10.2f}", flush=True)  # fmt: skip
        gain = sum(one.bf16_s for one in mine) / sum(one.row_s for one in mine)
        print(f"{shape:<20} all: rows over tensors {dearer(mine):.3f}, planner {dearer_planned(mine):.3f}; "
              f"rows {gain:.2f} times as fast as bf16")  # fmt: skip
        found += mine
    if given.out is not None:
        write_rows(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
