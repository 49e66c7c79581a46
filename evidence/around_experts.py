"""What gpt-oss asks for around its experts' products, and most programs leave to PyTorch, timed on this GPU.

    python evidence/around_experts.py [--out FILE.csv]

Pieces, operation by operation, as Megatron-Core runs them in 16 bits: the clamp before the gated activation (halves
clamped, then joined), the bias after the down product (times the router's probability in fp32, expert by expert, joined
and rounded), and the rotation of queries and keys that YaRN scales. NeMo AutoModel also adds the up product's bias so.
Medians of 20 after a warm-up, random inputs, bf16. `moved` are the bytes that such a time moves at this GPU's rate of
element-wise passes, for each element of the piece: work/unfused.py has them. Launches are the device's, both passes.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from _timed_rows import write_rows
from shardwise.cost.curve import curve_of
from shardwise.spec.hardware import gpu_of

WARM, REPEATS = 5, 20
WIDTH, HEADS, KEY_HEADS, HEAD_DIM, LIMIT = 2880, 64, 8, 64, 7.0
"""gpt-oss: hidden and expert width, heads of queries and of keys, width of a head, bound of the clamp"""
COPIES = [16_384, 65_536, 131_072]
SHAPES = [(16_384, 16), (16_384, 2), (65_536, 16), (65_536, 4), (65_536, 2), (131_072, 2)]
"""token copies on a rank, and the experts that share them"""
TOKENS = [4096, 16_384, 32_768]

Piece = tuple[Callable[[], Any], list[Any]]
"""what to time, and the tensors whose gradients it has"""


class Timed(NamedTuple):
    piece: str
    rows: int
    experts: int
    elements: int
    forward_s: float
    backward_s: float
    launches: int


def clamped(rows: int) -> Piece:
    import torch

    pre = torch.randn(rows, 2 * WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_()

    def run() -> torch.Tensor:
        gate, up = pre.chunk(2, -1)
        return torch.cat((gate.clamp(max=LIMIT), up.clamp(min=-LIMIT, max=LIMIT)), -1)

    return run, [pre]


def biased(rows: int, experts: int) -> Piece:
    import torch

    out = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_()
    biases = [torch.randn(WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(experts)]
    weights = torch.rand(rows, 1, device="cuda").requires_grad_()
    each = rows // experts

    def run() -> torch.Tensor:
        parts = zip(out.split(each), biases, weights.split(each), strict=True)
        return torch.cat([part + bias * weight for part, bias, weight in parts]).to(out.dtype)

    return run, [out, *biases, weights]


def biased_up(rows: int, experts: int) -> Piece:
    import torch

    out = torch.randn(rows, 2 * WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_()
    biases = [torch.randn(2 * WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(experts)]

    def run() -> torch.Tensor:
        parts = zip(out.split(rows // experts), biases, strict=True)
        return torch.cat([part + bias for part, bias in parts]).to(out.dtype)

    return run, [out, *biases]


def rotated(tokens: int) -> Piece:
    import torch

    heads = HEADS + KEY_HEADS
    vectors = torch.randn(tokens, heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16).requires_grad_()
    angles = torch.randn(tokens, 1, HEAD_DIM, device="cuda")

    def run() -> torch.Tensor:
        turned, rest = vectors[..., :HEAD_DIM], vectors[..., HEAD_DIM:]
        cos, sin = (1.35 * angles.cos()).to(turned.dtype), (1.35 * angles.sin()).to(turned.dtype)
        first, second = turned.chunk(2, -1)
        return torch.cat((turned * cos + torch.cat((-second, first), -1) * sin, rest), -1)

    return run, [vectors]


def timed(name: str, rows: int, experts: int, piece: Piece) -> Timed:
    import torch

    run, wanted = piece
    gradient = torch.randn_like(run())
    forward, backward = [], []
    for _ in range(WARM + REPEATS):
        start, between, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        torch.cuda._sleep(20_000_000)  # the host is ahead: the device's time is measured, not that of launching
        start.record()
        found = run()
        between.record()
        torch.autograd.grad(found, wanted, gradient)
        end.record()
        torch.cuda.synchronize()
        forward.append(start.elapsed_time(between) / 1e3)
        backward.append(between.elapsed_time(end) / 1e3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.autograd.grad(run(), wanted, gradient)
        torch.cuda.synchronize()
    launches = sum(event.device_type == torch.profiler.DeviceType.CUDA for event in profile.events())
    return Timed(name, rows, experts, gradient.numel(), median(forward[WARM:]), median(backward[WARM:]), launches)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the times as CSV")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: the pieces can only be timed on a GPU")
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    curve = curve_of(gpu_of("h200"))
    print(f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}")
    print(f"{'piece':<9} {'rows':>7} {'experts':>7} {'fwd ms':>8} {'bwd ms':>8} {'moved':>15} {'launches':>8}")
    jobs: list[tuple[str, int, int, Callable[[], Piece]]] = []
    jobs += [("clamp", rows, 1, partial(clamped, rows)) for rows in COPIES]
    jobs += [("bias", rows, experts, partial(biased, rows, experts)) for rows, experts in SHAPES]
    jobs += [("up bias", rows, experts, partial(biased_up, rows, experts)) for rows, experts in SHAPES]
    jobs += [("rotation", tokens, 1, partial(rotated, tokens)) for tokens in TOKENS]
    found = []
    for name, rows, experts, make in jobs:
        one = timed(name, rows, experts, make())
        found.append(one)
        rate = curve.memory["stream"] * curve.bandwidth / one.elements
        print(f"{name:<9} {rows:>7} {experts:>7} {1e3 * one.forward_s:8.3f} {1e3 * one.backward_s:8.3f} "
              f"{one.forward_s * rate:7.1f} {one.backward_s * rate:7.1f} {one.launches:>8}", flush=True)  # fmt: skip
    if given.out:
        write_rows(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
