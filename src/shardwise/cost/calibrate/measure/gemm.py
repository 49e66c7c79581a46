"""Matrix products as a training step has them, warm; and how much faster they are in a short burst."""

import time
from collections.abc import Iterator

import torch

from shardwise.cost.calibrate.measure._bench import Bench, Call, Point

HEAT_S = 2.0
REST_S = 1.0
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# m tokens into n outputs from k inputs: projections, feed-forwards and heads of small to large models, thin and fat
CUDA_SHAPES = [
    (m, n, k)
    for m in (1024, 4096, 8192)
    for n, k in (
        (2048, 2048), (4096, 4096), (8192, 2048), (6144, 4096), (14336, 4096), (4096, 14336), (8192, 8192),
        (28672, 8192), (1024, 8192), (32000, 2048),
    )
]  # fmt: skip
CPU_SHAPES = [(m, n, k) for m in (128, 512, 1024) for n, k in ((256, 256), (1024, 256), (256, 1024), (1024, 1024))]
LARGE = {"cuda": (8192, 8192, 8192), "cpu": (512, 1024, 1024)}


def shapes_of(bench: Bench, quick: bool) -> list[tuple[int, int, int]]:
    every = CUDA_SHAPES if bench.cuda else CPU_SHAPES
    return every[::3] if quick else every


def product_calls(bench: Bench, m: int, n: int, k: int, dtype: str) -> list[Call]:
    kind = DTYPES[dtype]
    bytes_ = (m * k + n * k + m * n) * kind.itemsize

    def one() -> Call:
        left, right = bench.random(m, k, dtype=kind), bench.random(n, k, dtype=kind)
        out = torch.empty(m, n, device=bench.device, dtype=kind)
        return lambda: torch.mm(left, right.t(), out=out)

    return [one() for _ in range(bench.copies(bytes_))]


def gemm_points(bench: Bench, dtype: str, shapes: list[tuple[int, int, int]]) -> Iterator[Point]:
    for m, n, k in shapes:
        yield {"dtype": dtype, "m": m, "n": n, "k": k, "seconds": bench.seconds(product_calls(bench, m, n, k, dtype))}


def burst_seconds(bench: Bench, dtype: str) -> float:
    """A large product on a rested chip, before the power limit lowers its clock."""
    calls = product_calls(bench, *LARGE[bench.device.type], dtype)
    bench.seconds(calls)
    if bench.cuda:
        time.sleep(REST_S)
    return bench.seconds(calls)


def hot_seconds(bench: Bench, dtype: str, heat_s: float = HEAT_S) -> float:
    """The same product after seconds of load; it leaves the chip warm for what is measured next."""
    calls = product_calls(bench, *LARGE[bench.device.type], dtype)
    until = time.perf_counter() + (heat_s if bench.cuda else 0.0)
    while time.perf_counter() < until:
        for call in calls * 5:
            call()
        if bench.cuda:
            torch.cuda.synchronize(bench.device)
    return bench.seconds(calls)
