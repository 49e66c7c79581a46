"""Residual streams of DeepSeek-V4 mixed around one block, timed on this GPU with torch.compile, beside the planner.

    python evidence/streams.py [--out FILE.csv]

Three compiled functions: the weights of a token's streams (a narrow product, sigmoids, 20 rounds of Sinkhorn's), the
block's input, and its output put back. The block itself is left out. Medians of 20 after a warm-up, random inputs,
bf16, weights in fp32. The planner counts fused kernels, as Megatron-Core has them for Blackwell: what this takes longer
is what a program without them loses.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from _timed_rows import write_rows
from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import gemm_seconds, memory_seconds
from shardwise.spec.arch import model_of
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.policy import Policies, Policy
from shardwise.work.layout import layout_of
from shardwise.work.streams import streams_work

WARM, REPEATS, ROUNDS = 5, 20, 20
SHAPES = [("deepseek-v4-flash", 4096), ("deepseek-v4-flash", 8192), ("deepseek-v4-flash", 16_384),
          ("deepseek-v4-pro", 4096), ("deepseek-v4-pro", 8192)]  # fmt: skip


class Timed(NamedTuple):
    model: str
    tokens: int
    forward_s: float
    backward_s: float
    predicted_forward_s: float
    predicted_backward_s: float


def predicted(name: str, tokens: int, gpu: str = "h200") -> tuple[float, float]:
    """Seconds around one of a layer's two blocks."""
    model, job, curve = model_of(name), Job(seq=tokens, global_batch=1), curve_of(gpu_of(gpu))
    layout = layout_of(model, job, Policies.of([Policy()]))
    work = streams_work(model, model.kinds[0], layout, precision_of("bf16"))
    (passes,), blocks = work.pointwise, model.kinds[0].blocks
    weights = work.gemms[0]
    m, n, k = weights.m, weights.n, weights.k
    products = [gemm_seconds(curve, *shape) for shape in ((m, n, k), (m, k, n), (n, k, m))]
    forward = memory_seconds(curve, passes.forward_bytes / blocks) + products[0]
    backward = memory_seconds(curve, passes.backward_bytes / blocks) + products[1] + products[2]
    return float(np.ravel(forward)[0]), float(np.ravel(backward)[0])


def kernels() -> tuple[Any, Any, Any]:
    import torch

    @torch.compile
    def weights(
        x: torch.Tensor, fn: torch.Tensor, base: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        n = x.shape[1]
        flat = x.flatten(1)
        size = torch.rsqrt(flat.float().square().mean(-1, keepdim=True) + 1e-6)
        made = (flat @ fn.to(flat.dtype).t()).float() * size
        read, put, mixed = made.split((n, n, n * n), dim=-1)
        first, second, third = base.split((n, n, n * n))
        mix = torch.softmax((mixed * scale[2] + third).unflatten(-1, (n, n)), dim=-1)
        for _ in range(ROUNDS):
            mix = mix / mix.sum(-2, keepdim=True)
            mix = mix / mix.sum(-1, keepdim=True)
        return torch.sigmoid(read * scale[0] + first), torch.sigmoid(put * scale[1] + second), mix

    @torch.compile
    def taken(x: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        return (x * read.unsqueeze(-1)).sum(1).to(x.dtype)

    @torch.compile
    def put_back(x: torch.Tensor, out: torch.Tensor, put: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        rows = [sum(mix[:, j, i, None] * x[:, j] for j in range(n)) + put[:, i, None] * out for i in range(n)]
        return torch.stack(rows, dim=1).to(x.dtype)

    return weights, taken, put_back


def timed(name: str, tokens: int, compiled: tuple[Any, Any, Any]) -> Timed:
    import torch

    weights, taken, put_back = compiled
    model = model_of(name)
    n, width = model.streams, model.hidden
    x = torch.randn(tokens, n, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    out = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    fn = (torch.randn(n * (n + 2), n * width, device="cuda") / (n * width) ** 0.5).requires_grad_()
    base = torch.zeros(n * (n + 2), device="cuda").requires_grad_()
    scale = torch.ones(3, device="cuda").requires_grad_()
    gradients = torch.randn_like(x), torch.randn_like(out)
    forward, backward = [], []
    for _ in range(WARM + REPEATS):
        start, between, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        start.record()
        read, put, mix = weights(x, fn, base, scale)
        found = put_back(x, out, put, mix), taken(x, read)
        between.record()
        torch.autograd.grad(found, (x, out, fn, base, scale), gradients)
        end.record()
        torch.cuda.synchronize()
        forward.append(start.elapsed_time(between) / 1e3)
        backward.append(between.elapsed_time(end) / 1e3)
    return Timed(name, tokens, median(forward[WARM:]), median(backward[WARM:]), *predicted(name, tokens))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the times as CSV")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: the kernels can only be timed on a GPU")
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}")
    print(f"{'model':<20} {'tokens':>7} {'fwd ms':>8} {'planned':>8} {'bwd ms':>8} {'planned':>8}")
    compiled, found = kernels(), []
    for name, tokens in SHAPES:
        one = timed(name, tokens, compiled)
        found.append(one)
        ms = [1e3 * s for s in (one.forward_s, one.predicted_forward_s, one.backward_s, one.predicted_backward_s)]
        print(f"{name:<20} {tokens:>7} " + " ".join(f"{value:8.3f}" for value in ms), flush=True)
    if given.out:
        write_rows(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
