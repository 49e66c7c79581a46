"""Times classes of operators as a training step meets them, on the CUDA device that is there: one behind the other on a
stream, launched ahead, on buffers that are not in the GPU's cache.

    python evidence/trace_stream.py --out stream.csv [--only sums,norms]

Replays of a CUDA graph (`trace_kernels.py`, `trace_operators.py`) leave out what torch puts between kernels, and find
small tensors in the cache. Here a long product keeps the GPU busy while the host launches the calls, so their time is
the GPU's alone; gaps between kernels are in it. `calls` has the operators of one call, as JSON: name, arguments,
results.
Group `long` repeats products for a quarter of a second, until the power limit has lowered the clock.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trace_kernels import _kernel_names
from trace_operators import Listened

Case = tuple[str, Callable[[int], Any]]
"""a name, and a call of the buffers with that number"""
BF16, FP32 = torch.bfloat16, torch.float32
FIELDS = ["group", "case", "us", "calls", "kernels"]
MIB = 2**20
COLD_BYTES, MOST_BUFFERS = 160 * MIB, 12
LONG_S = 0.25
AHEAD_S = 25e-6
"""of host time a call"""


def many(make: Callable[[], Any], bytes_: int) -> list[Any]:
    """Buffers in turn, more than the cache holds."""
    return [make() for _ in range(max(2, min(MOST_BUFFERS, COLD_BYTES // max(bytes_, 1) + 1)))]


def _random(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def _name(*parts: Any) -> str:
    return "_".join(str(part).removeprefix("torch.") for part in parts)


def sizes() -> Iterator[Case]:
    for dtype, size in product((BF16, FP32), (2**8, 2**16, 2**19, 2**21, 2**23, 2**25)):
        width = 2 if dtype is BF16 else 4
        pairs = many(lambda size=size, dtype=dtype: (_random(size, dtype=dtype), _random(size, dtype=dtype)),
                     2 * size * width)  # fmt: skip
        to = FP32 if dtype is BF16 else BF16
        yield _name("add", size, dtype), lambda i, p=pairs: torch.add(*p[i % len(p)])
        yield _name("cast", size, dtype), lambda i, p=pairs, to=to: p[i % len(p)][0].to(to)
        yield _name("scaled", size, dtype), lambda i, p=pairs: p[i % len(p)][0] * 1.5
        yield _name("gelu", size, dtype), lambda i, p=pairs: F.gelu(p[i % len(p)][0])


def sums() -> Iterator[Case]:
    for dtype, rows, columns in product((BF16, FP32), (1024, 4096, 16384, 65536, 262144), (64, 320, 768, 1024, 3072)):
        if rows * columns <= 2**28:
            xs = many(lambda r=rows, c=columns, d=dtype: _random(r, c, dtype=d), rows * columns * 2)
            yield _name("columns", rows, columns, dtype), lambda i, xs=xs: xs[i % len(xs)].sum(0)
    for dtype, rows, columns in product((BF16, FP32), (4096, 65536), (64, 768, 4096)):
        xs = many(lambda r=rows, c=columns, d=dtype: _random(r, c, dtype=d), rows * columns * 2)
        yield _name("rows", rows, columns, dtype), lambda i, xs=xs: xs[i % len(xs)].sum(-1)


def norms() -> Iterator[Case]:
    widths = (64, 128, 320, 384, 768, 1024, 2048)
    for dtype, rows, width in product((BF16, FP32), (2048, 8192, 16448, 65536, 200704), widths):
        if rows * width > 2**27:
            continue
        ones, zeros = (torch.ones(width, device="cuda", dtype=dtype) for _ in range(2))
        xs = many(lambda r=rows, w=width, d=dtype: _random(r, w, dtype=d), rows * width * 2)
        tag = _name(rows, width, dtype)

        def forward(i: int, xs: list[Tensor] = xs, w: Tensor = ones, b: Tensor = zeros) -> Any:
            return torch.native_layer_norm(xs[i % len(xs)], (w.shape[0],), w, b, 1e-5)

        _, mean, rstd = forward(0)

        def backward(i: int, xs: list[Tensor] = xs, w: Tensor = ones, b: Tensor = zeros, m: Tensor = mean,
                     r: Tensor = rstd) -> Any:  # fmt: skip
            x, y = xs[i % len(xs)], xs[(i + 1) % len(xs)]
            return torch.ops.aten.native_layer_norm_backward(y, x, [w.shape[0]], m, r, w, b, [True, True, True])

        yield "layer_norm_" + tag, forward
        yield "layer_norm_backward_" + tag, backward


def batches() -> Iterator[Case]:
    shapes = ((256, 16, 112), (256, 32, 112), (256, 32, 28), (256, 24, 56), (256, 96, 56), (256, 144, 56),
              (256, 192, 28), (256, 384, 14), (256, 960, 7), (256, 1280, 7), (64, 64, 112), (128, 256, 56),
              (128, 512, 28), (128, 1024, 14), (128, 2048, 7))  # fmt: skip
    for (rows, channels, size), last, dtype in product(shapes, (True, False), (BF16, FP32)):

        def make(r: int = rows, c: int = channels, s: int = size, last: bool = last, d: torch.dtype = dtype) -> Tensor:
            x = _random(r, c, s, s, dtype=d)
            return x.to(memory_format=torch.channels_last) if last else x

        xs = [make() for _ in range(2)]
        w, b, m, v = (torch.ones(channels, device="cuda") for _ in range(4))

        def forward(i: int, xs: list[Tensor] = xs, w: Tensor = w, b: Tensor = b, m: Tensor = m, v: Tensor = v) -> Any:
            return torch.batch_norm(xs[i % len(xs)], w, b, m, v, True, 0.1, 1e-5, True)

        tag = _name(rows, channels, size, "last" if last else "apart", dtype)
        yield "batch_norm_" + tag, forward
        x = make().requires_grad_()
        w.requires_grad_(), b.requires_grad_()
        with torch.enable_grad():
            y = torch.batch_norm(x, w, b, m, v, True, 0.1, 1e-5, True)
        yield "batch_norm_backward_" + tag, lambda i, y=y, of=(x, w, b), xs=xs: torch.autograd.grad(
            y, of, xs[i % len(xs)], retain_graph=True)  # fmt: skip


def permuted() -> Iterator[Case]:
    shapes = ((64, 196, 196, 8), (64, 8, 196, 196), (64, 197, 12, 64), (16, 512, 3, 1024), (32, 3136, 4, 32),
              (8, 1024, 16, 128))  # fmt: skip
    orders = ((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 2, 1), (2, 0, 1, 3), (1, 0, 2, 3),
              (3, 0, 1, 2))  # fmt: skip
    for shape, order, dtype in product(shapes, orders, (BF16, FP32)):
        xs = many(lambda shape=shape, d=dtype: _random(*shape, dtype=d), 4 * shape[0] * shape[1] * shape[2] * shape[3])
        yield _name("permute", *shape, *order, dtype), lambda i, xs=xs, o=order: xs[i % len(xs)].permute(o).contiguous()
    for (rows, one, two), dtype in product(((64, 196, 384), (64, 3136, 64), (64, 784, 128), (8, 512, 16000),
                                            (16, 1024, 768), (4, 2048, 2048)), (BF16, FP32)):  # fmt: skip
        xs = many(lambda r=rows, a=one, b=two, d=dtype: _random(r, a, b, dtype=d), rows * one * two * 4)
        other = many(lambda r=rows, a=one, b=two, d=dtype: _random(r, b, a, dtype=d), rows * one * two * 4)
        tag = _name(rows, one, two, dtype)
        to = FP32 if dtype is BF16 else BF16
        yield "transpose_" + tag, lambda i, xs=xs: xs[i % len(xs)].transpose(1, 2).contiguous()
        yield "transpose_add_" + tag, lambda i, xs=xs, ys=other: ys[i % len(ys)] + xs[i % len(xs)].transpose(1, 2)
        yield "transpose_cast_" + tag, lambda i, xs=xs, to=to: (
            torch.empty_like(xs[i % len(xs)].transpose(1, 2), dtype=to, memory_format=torch.contiguous_format)
            .copy_(xs[i % len(xs)].transpose(1, 2)))  # fmt: skip


def masked() -> Iterator[Case]:
    for rows, heads, seq in ((8, 12, 1024), (32, 12, 256), (16, 16, 512), (64, 6, 197)):
        scores = {d: _random(rows, heads, seq, seq, dtype=d) for d in (BF16, FP32)}
        for (one, of), (name, shape) in product(
            product((BF16, FP32), (BF16, FP32)),
            {"mask": (rows, 1, seq, seq), "bias": (1, heads, seq, seq), "row": (rows, 1, 1, seq)}.items(),
        ):
            other = _random(*shape, dtype=of)
            yield _name(name, rows, heads, seq, one, of), lambda _, x=scores[one], y=other: x + y


def thin() -> Iterator[Case]:
    pairs = ((8, 8), (16, 16), (32, 32), (64, 64), (8, 64), (64, 8), (64, 256), (64, 512), (512, 64), (128, 1024),
             (1024, 128), (96, 384), (320, 1280), (4, 64), (2, 768))  # fmt: skip
    for rows, (n, k) in product((16384, 200704, 2458624), pairs):
        if rows * (n + k) > 2**28:
            continue
        xs = many(lambda r=rows, k=k: _random(r, k), rows * (n + k) * 2)
        gs = many(lambda r=rows, n=n: _random(r, n), rows * (n + k) * 2)
        w = _random(n, k)
        tag = _name(rows, n, k)
        yield "mm_" + tag, lambda i, xs=xs, w=w: torch.mm(xs[i % len(xs)], w.t())
        yield "mm_input_" + tag, lambda i, gs=gs, w=w: torch.mm(gs[i % len(gs)], w)
        yield "mm_weight_" + tag, lambda i, xs=xs, gs=gs: torch.mm(gs[i % len(gs)].t(), xs[i % len(xs)])


def long() -> Iterator[Case]:
    for n, k in product((50304, 50257, 30522, 250002, 50260, 50264, 4096), (768, 2048)):
        x, w, g = _random(8192, k), _random(n, k), _random(8192, n)
        tag = _name(8192, n, k)
        yield "mm_" + tag, lambda _, x=x, w=w: torch.mm(x, w.t())
        yield "mm_input_" + tag, lambda _, g=g, w=w: torch.mm(g, w)
        yield "mm_weight_" + tag, lambda _, g=g, x=x: torch.mm(g.t(), x)


def convolved() -> Iterator[Case]:
    """Input, filters, size of a filter, stride, groups."""
    images = [((64, 3, 224, 224), 768, 16, 16, 1), ((64, 3, 224, 224), 1024, 14, 14, 1),
              ((128, 3, 224, 224), 768, 32, 32, 1), ((64, 3, 224, 224), 96, 4, 4, 1), ((64, 3, 224, 224), 64, 7, 4, 1),
              ((64, 3, 224, 224), 64, 7, 2, 1), ((64, 3, 224, 224), 32, 3, 2, 1), ((64, 3, 224, 224), 16, 3, 2, 1),
              ((64, 3, 224, 224), 64, 3, 1, 1), ((16, 1, 1024, 128), 768, 16, 10, 1), ((8, 3, 512, 512), 32, 7, 4, 1),
              ((64, 512, 7, 7), 4096, 7, 1, 1), ((64, 256, 14, 14), 512, 2, 2, 1)]  # fmt: skip
    clips = [((8, 3, 16, 224, 224), 768, (2, 16, 16), (2, 16, 16), 1)]
    sounds = [((8, 1, 160000), 512, 10, 5, 1), ((8, 512, 16000), 512, 3, 2, 1), ((8, 80, 3000), 768, 3, 1, 1),
              ((8, 768, 499), 768, 128, 1, 16), ((8, 1024, 499), 1024, 128, 1, 16), ((8, 512, 1000), 512, 19, 1, 16),
              ((8, 512, 1000), 512, 31, 1, 512)]  # fmt: skip
    for (shape, filters, kernel, stride, groups), dtype in product([*images, *clips, *sounds], (BF16, FP32)):
        taps = kernel if isinstance(kernel, tuple) else (kernel,) * (len(shape) - 2)
        for last in (False, True) if len(shape) == 4 else (False,):
            x, w = _random(*shape, dtype=dtype), _random(filters, shape[1] // groups, *taps, dtype=dtype)
            if last:
                x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
            run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(shape)]
            padding = taps[0] // 2 if stride == 1 and len(shape) == 3 else 0
            wide = shape[1] > 3
            x.requires_grad_(wide), w.requires_grad_()
            with torch.enable_grad():
                y = run(x, w, None, stride, padding, 1, groups)
            gradient = torch.randn_like(y)
            tag = _name(*shape, filters, "x".join(map(str, taps)), "last" if last else "apart", dtype)
            yield "conv_" + tag, lambda _, x=x, w=w, run=run, s=stride, p=padding, g=groups: run(
                x.detach(), w.detach(), None, s, p, 1, g)  # fmt: skip
            yield "conv_backward_" + tag, lambda _, y=y, of=((x, w) if wide else (w,)), d=gradient: torch.autograd.grad(
                y, of, d, retain_graph=True)  # fmt: skip


def biased() -> Iterator[Case]:
    """Attention with a bias that is trained: which kernels torch chooses."""
    for (batch, length), width, dtype, whole in product(
        ((64, 196), (512, 49), (256, 64), (64, 197), (64, 256), (16, 512)), (32, 64), (BF16, FP32), (True, False)
    ):
        heads = 8
        q, k, v = (_random(batch, heads, length, width, dtype=dtype).requires_grad_() for _ in range(3))
        bias = _random(1, heads, length, length, dtype=dtype).requires_grad_()

        def run(q: Tensor = q, k: Tensor = k, v: Tensor = v, b: Tensor = bias, whole: bool = whole) -> Tensor:
            mask = b.expand(q.shape[0], -1, -1, -1) if whole else b
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        with torch.enable_grad():
            y = run()
        gradient = torch.randn_like(y)

        def forward(_: int, run: Callable[[], Tensor] = run) -> Any:
            with torch.enable_grad():
                return run()

        tag = _name(batch, heads, length, width, dtype, "whole" if whole else "one")
        yield "biased_" + tag, forward
        yield "biased_backward_" + tag, lambda _, y=y, of=(q, k, v, bias), d=gradient: torch.autograd.grad(
            y, of, d, retain_graph=True)  # fmt: skip


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "sizes": sizes, "sums": sums, "norms": norms, "batches": batches, "permuted": permuted, "masked": masked,
    "thin": thin, "long": long, "convolved": convolved, "biased": biased,
}  # fmt: skip
NAMED = ("convolved", "biased", "thin", "long")


def seconds_of(call: Callable[[int], Any], ahead: Tensor, rests: int = 3) -> float:
    """One call among several, behind a product that lasts until all are launched."""
    found = []
    for _ in range(2):
        call(0)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call(1)
    end.record()
    torch.cuda.synchronize()
    once = begin.elapsed_time(end) * 1e-3
    count = max(4, min(16, int(4e-3 / once)))
    for _ in range(rests):
        for _ in range(max(1, int(count * AHEAD_S * 4 / 1.4e-3 + 1))):
            torch.mm(ahead, ahead)
        begin.record()
        for i in range(count):
            call(i)
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e-3 / count)
    return min(found)


def long_seconds_of(call: Callable[[int], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start = perf_counter()
    while perf_counter() - start < LONG_S / 2:
        for i in range(8):
            call(i)
        torch.cuda.synchronize()
    count = 0
    begin.record()
    while perf_counter() - start < LONG_S:
        for i in range(8):
            call(i)
        count += 8
        torch.cuda.synchronize()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3 / max(count, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--only", metavar="GROUPS", help="names of groups, with commas between")
    asked = parser.parse_args()
    ahead = _random(8192, 8192)
    with asked.out.open("w", encoding="utf-8", newline="") as file, torch.no_grad():
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for group in asked.only.split(",") if asked.only else GROUPS:
            start, rows = perf_counter(), 0
            try:
                for name, call in GROUPS[group]():
                    try:
                        with Listened() as heard:
                            call(0)
                        row = {"group": group, "case": name, "us": round(seconds_of(call, ahead) * 1e6, 2),
                               "calls": json.dumps([[json.loads(text), n] for text, n in heard.counts.items()]),
                               "kernels": _kernel_names(lambda c=call: c(0)) if group in NAMED else ""}  # fmt: skip
                        writer.writerow(row)
                        if group == "long":
                            writer.writerow(row | {"case": name + "_long",
                                                   "us": round(long_seconds_of(call) * 1e6, 2)})  # fmt: skip
                        rows += 1
                    except torch.OutOfMemoryError:
                        torch.cuda.empty_cache()
            except Exception as error:
                print(f"{group}: {type(error).__name__} {str(error)[:200]}", file=sys.stderr)
            file.flush()
            torch.cuda.empty_cache()
            print(f"{group} {rows} cases {perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
