"""Flash attention through torch's fused kernel, causal, forward and backward."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from shardwise.cost.calibrate.measure._bench import Bench, Call, Point

# batch, query heads, key heads, sequence, width of a head
CUDA_SHAPES = [
    (8, 16, 16, 1024, 64), (4, 32, 32, 2048, 64), (2, 32, 8, 4096, 128), (1, 32, 8, 8192, 128), (1, 64, 8, 4096, 128),
    (8, 16, 4, 1024, 128), (1, 16, 16, 16384, 128), (1, 8, 8, 2048, 128), (16, 32, 8, 512, 128), (1, 8, 2, 32768, 128),
]  # fmt: skip
CPU_SHAPES = [(1, 4, 4, 128, 64), (1, 8, 2, 256, 64), (2, 4, 4, 256, 32), (1, 4, 4, 512, 64), (1, 8, 8, 128, 32)]


def shapes_of(bench: Bench, quick: bool) -> list[tuple[int, int, int, int, int]]:
    every = CUDA_SHAPES if bench.cuda else CPU_SHAPES
    return every[::2] if quick else every


def causal_flops(batch: int, heads: int, seq: int, dim: int) -> float:
    """Two products over half the square."""
    return 2.0 * batch * heads * seq * seq * dim


def attention_points(bench: Bench, shapes: list[tuple[int, int, int, int, int]]) -> Iterator[Point]:
    for shape in shapes:
        yield from _passes(bench, *shape)


def _passes(bench: Bench, batch: int, heads: int, kv_heads: int, seq: int, dim: int) -> list[Point]:
    kind = torch.bfloat16 if bench.cuda else torch.float32
    size = batch * (2 * heads + 2 * kv_heads) * seq * dim * kind.itemsize
    grouped = heads != kv_heads

    def inputs() -> tuple[torch.Tensor, ...]:
        shapes = ((heads, seq), (kv_heads, seq), (kv_heads, seq))
        return tuple(bench.random(batch, h, s, dim, dtype=kind).requires_grad_() for h, s in shapes)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)

    def both() -> tuple[Call, Call]:
        qkv = inputs()
        plain = tuple(x.detach() for x in qkv)
        out = attend(*qkv)
        grad = torch.randn_like(out)
        return lambda: attend(*plain), lambda: torch.autograd.grad(out, qkv, grad, retain_graph=True)

    calls = [both() for _ in range(min(bench.copies(size), 4))]
    facts: Point = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": dim}
    flops = causal_flops(batch, heads, seq, dim)
    return [
        {**facts, "pass": side, "flops": flops * factor, "seconds": bench.seconds([pair[i] for pair in calls])}
        for i, (side, factor) in enumerate((("forward", 1.0), ("backward", 2.5)))
    ]
