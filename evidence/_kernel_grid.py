"""Generic kernels on a grid, by the class of what they do and not by program: `trace_operators.py grid --of
kernels`."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

import _grid_convolutions
from _operator_grid import FLOATS, Case, _made

aten = torch.ops.aten
BF16, FP32 = FLOATS


def _plain(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return _made(*shape, dtype=dtype).detach()


def _index(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")


def products() -> Iterator[Case]:
    """In the three layouts of a layer: its output, the gradients of its input and of its weights."""
    wide = [*product((2048, 8192), ((768, 768), (3072, 768), (768, 3072), (2304, 768), (1024, 1024), (4096, 1024),
                                   (1024, 4096), (2048, 2048), (8192, 2048), (2048, 8192), (512, 2048), (320, 1280),
                                   (32000, 1024)))]  # fmt: skip
    wide += [*product((4096, 12608, 16384), ((768, 768), (3072, 768), (768, 3072), (1024, 1024), (4096, 1024)))]
    wide += [*product((4096,), ((4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096), (3072, 3072)))]
    wide += [(8192, narrow) for narrow in ((16, 2048), (2048, 16), (64, 1024), (1024, 64), (8, 768))]
    odd = [*product((4096,), ((50257, 768), (768, 50257), (30522, 768), (51865, 768), (1001, 1024), (1000, 1024),
                              (1500, 1024), (197, 768), (1024, 197)))]  # fmt: skip
    for m, (n, k) in (*wide, *odd):
        yield from _layers(m, n, k, BF16)
    for m, (n, k) in (*wide[:13:2], (8192, (768, 768)), (8192, (3072, 768)), (8192, (768, 3072)), (4096, (2048, 2048)),
                      (4096, (32000, 1024))):  # fmt: skip
        yield from _layers(m, n, k, FP32)
    for batch, (m, n, k) in product((64, 512, 4096), ((16, 16, 64), (49, 49, 32), (64, 64, 64), (128, 128, 64),
                                                      (128, 64, 128), (197, 197, 64), (197, 64, 197), (256, 256, 64),
                                                      (256, 64, 256), (512, 512, 64), (512, 64, 512),
                                                      (77, 77, 64))):  # fmt: skip
        if batch * m * n < 2**29:
            for dtype in FLOATS:
                a, b = _plain(batch, m, k, dtype=dtype), _plain(batch, k, n, dtype=dtype)
                turned = _plain(batch, n, k, dtype=dtype).transpose(1, 2)
                yield lambda a=a, b=b: torch.bmm(a, b)
                yield lambda a=a, t=turned: torch.bmm(a, t)


def _layers(m: int, n: int, k: int, dtype: torch.dtype) -> Iterator[Case]:
    x, weight, gradient = (_plain(*shape, dtype=dtype) for shape in ((m, k), (n, k), (m, n)))
    yield lambda: torch.mm(x, weight.t())
    yield lambda: torch.mm(gradient, weight)
    yield lambda: torch.mm(gradient.t(), x)


def attention() -> Iterator[tuple[str, int, int, int, int, str, str]]:
    """Part, heads of all rows, queries, keys, width, way and type: see `trace_operators.attention_call`."""
    shapes = []
    for width, seq in product((32, 64, 80, 128, 256), (49, 197, 256, 512, 577, 1024, 1500, 2048, 4096)):
        ways = ("whole", "causal", "mask", "bias") if width in (64, 128) else ("whole", "causal")
        shapes += [(seq, seq, width, way, "bfloat16") for way in ways if way != "causal" or seq >= 256]
    for queries, keys in ((77, 197), (256, 1500), (448, 1500), (128, 1024), (512, 77), (1024, 77), (4096, 77)):
        shapes.append((queries, keys, 64, "whole", "bfloat16"))
    for width, seq, way in product((64, 128), (197, 512, 1024, 2048), ("whole", "causal", "mask")):
        shapes.append((seq, seq, width, way, "float32"))
    for part, (queries, keys, width, way, dtype) in product(("forward", "backward"), shapes):
        yield part, max(min(2**25 // (queries * keys), 768), 4), queries, keys, width, way, dtype


def broadcasts() -> Iterator[Case]:
    """Axes that do not fall together: each costs a division for each operand."""
    whole = (64, 32, 16, 8)
    for dtype in FLOATS:
        for axes in range(2, 6):
            shape = (*whole[: axes - 1], 2**26 // 64 // _many(whole[: axes - 1]), 64)[-6:]
            full = _plain(*shape, dtype=dtype)
            even = _plain(*(size if place % 2 == 0 else 1 for place, size in enumerate(shape)), dtype=dtype)
            odd = _plain(*(size if place % 2 else 1 for place, size in enumerate(shape)), dtype=dtype)
            yield lambda full=full, even=even: full * even
            yield lambda full=full, odd=odd: full * odd
            yield lambda even=even, odd=odd: even * odd
            yield lambda full=full, even=even: full.add_(even)
            yield lambda full=full, even=even, odd=odd: torch.addcmul(full, even, odd)
            turned = _plain(*shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1])
            yield lambda full=full, turned=turned: full + turned
            yield lambda turned=turned: turned.contiguous()
        for rows, length, heads, width in ((2, 8, 32, 64), (1, 16, 24, 64)):
            one = _plain(rows, length, 128, 1, heads, 64, dtype=dtype)
            other = _plain(rows, length, 1, 128, heads, width, dtype=dtype)
            short = _plain(rows, length, 128, 128, heads, dtype=dtype)
            few = _plain(rows, length, 128, 1, 1, 64, dtype=dtype).expand(-1, -1, -1, -1, heads, -1)
            yield lambda one=one, other=other: one * other
            yield lambda few=few, other=other: few * other
            yield lambda short=short, other=other: short[..., None] * other
            tall = _plain(rows, length, 128, heads, 64, 1, dtype=dtype)
            flat = _plain(rows, length, 128, heads, 1, 64, dtype=dtype)
            yield lambda tall=tall, flat=flat: tall * flat
        for size in (2**21, 2**23, 2**25, 2**27):
            x, row = _plain(size // 1024, 1024, dtype=dtype), _plain(1024, dtype=dtype)
            column = _plain(size // 1024, 1, dtype=dtype)
            yield lambda x=x, row=row: x * row
            yield lambda x=x, column=column: x * column
            yield lambda x=x: x + 1.0
            yield lambda x=x: x.add_(x)
            yield lambda x=x: x[:, :512].contiguous()
            yield lambda x=x: x.to(FP32 if x.dtype is BF16 else BF16)
            yield lambda x=x: torch.relu_(x)


def _many(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def reductions() -> Iterator[Case]:
    for dtype, many in product(FLOATS, (2**22, 2**26)):
        for summed, inner in ((4, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (1024, 1), (8192, 1), (2, 64),
                              (8, 64), (32, 64), (128, 64), (1024, 64), (8, 1024), (128, 1024), (4096, 1024), (32, 8),
                              (1024, 8), (196, 768), (49, 1024), (3136, 96), (16384, 24), (16384, 144)):  # fmt: skip
            x = _plain(max(many // summed // inner, 1), summed, inner, dtype=dtype)
            yield lambda x=x: x.sum(1)
            if inner == 1:
                yield lambda x=x: x.mean(1)
                yield lambda x=x: x.amax(1)
        for shape, axes in (((16, 128, 128, 32, 64), (2,)), ((16, 128, 128, 32, 64), (1,)), ((16, 128, 128, 32, 64),
        (3,)),
                            ((16, 128, 128, 32, 64), (4,)), ((16, 128, 128, 32, 64), (1, 4)),
                            ((16, 128, 128, 32, 64), (3, 4)), ((16, 128, 128, 32, 64), (0, 2)),
                            ((16, 128, 128, 32, 64), (1, 3))):  # fmt: skip
            x = _plain(max(shape[0] * many // 2**27, 1), *shape[1:], dtype=dtype)
            yield lambda x=x, axes=axes: x.sum(axes)
        for channels, size in ((24, 144), (144, 72), (288, 36), (816, 18), (64, 112), (256, 56), (2048, 7)):
            x = _made(max(many // (channels * size * size), 1), channels, size, size, dtype=dtype, last=True).detach()
            yield lambda x=x: x.mean((2, 3), keepdim=True)
            yield lambda x=x: x.sum((2, 3), keepdim=True)
            yield lambda x=x: x.sum((0, 2, 3))
            y = x.contiguous()
            yield lambda y=y: y.mean((2, 3), keepdim=True)
            yield lambda y=y: y.sum((0, 2, 3))


def rows() -> Iterator[Case]:
    for dtype in FLOATS:
        for width in (16, 32, 77, 100, 128, 448, 1025, 1023, 1500, 2047, 2049, 2052, 3000, 4095, 4097, 8193):
            for many in (2**22, 2**26):
                x = _plain(many // width, width, dtype=dtype)
                yield lambda x=x: torch.softmax(x, -1)
                gradient = torch.empty_like(x)
                yield lambda x=x, g=gradient: aten._softmax_backward_data(g, x, -1, x.dtype)
        for width in (32, 48, 80, 160, 320, 640, 896, 1152, 2304, 6144):
            for many in (2**22, 2**25):
                x, weight = _plain(many // width, width, dtype=dtype), _plain(width, dtype=dtype)
                one, gradient = _plain(many // width, 1, dtype=FP32), torch.empty_like(x)
                yield lambda x=x, w=weight: torch.native_layer_norm(x, [x.shape[-1]], w, w, 1e-5)
                yield lambda x=x, g=gradient, w=weight, one=one: aten.native_layer_norm_backward(
                    g, x, [x.shape[-1]], one, one, w, w, [True, True, True]
                )
                yield lambda x=x, g=gradient, one=one: aten.native_layer_norm_backward(
                    g, x, [x.shape[-1]], one, one, None, None, [True, False, False]
                )
        for last, (channels, size) in product((False, True), ((16, 112), (24, 144), (64, 112), (96, 56), (144, 72),
                                                              (240, 28), (256, 56), (512, 28), (816, 18), (1024, 14),
                                                              (1392, 9), (2048, 7))):  # fmt: skip
            for images in (16, 128):
                x = _made(images, channels, size, size, dtype=dtype, last=last).detach()
                one, gradient = _plain(channels, dtype=FP32), torch.empty_like(x)
                yield lambda x=x, one=one: torch.native_batch_norm(x, one, one, one, one, True, 0.1, 1e-5)
                yield lambda x=x, g=gradient, one=one: aten.native_batch_norm_backward(
                    g, x, one, one, one, one, one, True, 1e-5, [True, True, True]
                )
        x, weight = _plain(8, 512, 31999, dtype=dtype), _plain(512, dtype=dtype)
        yield lambda x=x, w=weight: torch.native_group_norm(x, w, w, 8, 512, 31999, 512, 1e-5)


def lookups() -> Iterator[Case]:
    for dtype in FLOATS:
        for places, width, many in product((16, 256, 4096), (64, 1024, 4096), (4096, 16384, 65536)):
            if many * width <= 2**28:
                into, given, index = _plain(places, width, dtype=dtype), _plain(many, width, dtype=dtype), _index(many)
                yield lambda i=into, g=given, x=index: aten.index_put(i, [x], g, True)
                if many == 16384:
                    yield lambda i=into, g=given, x=index: i.index_add(0, x, g)
                    yield lambda i=into, x=index: i[x]
        for words, width, tokens in product((2, 128, 1024, 32000, 128000), (256, 1024, 4096), (2048, 16384)):
            gradient, index = _plain(tokens, width, dtype=dtype), _index(tokens)
            yield lambda g=gradient, x=index, w=words: aten.embedding_dense_backward(g, x, w, -1, False)
        for rows_, columns, taken in ((98304, 512, 512), (98304, 512, 128), (4096, 4096, 4096), (262144, 64, 64),
                                      (16384, 2048, 64), (8192, 32000, 1), (524288, 64, 8)):  # fmt: skip
            x, index, part = (
                _plain(rows_, columns, dtype=dtype),
                _index(rows_, taken),
                _plain(rows_, taken, dtype=dtype),
            )
            yield lambda x=x, i=index: x.gather(1, i)
            yield lambda x=x, i=index, p=part: x.scatter_add(1, i, p)
            yield lambda x=x, i=index, p=part: x.scatter(1, i, p)
        for rows_, columns in ((4096, 64), (16384, 1024), (65536, 64)):
            x, index = _plain(rows_, columns, dtype=dtype), _index(65536, columns)
            part = _plain(65536, columns, dtype=dtype)
            yield lambda x=x, i=index: x.gather(0, i)
            yield lambda x=x, i=index, p=part: x.scatter_add(0, i, p)


def scans() -> Iterator[Case]:
    for dtype, many in product(FLOATS, (2**22, 2**25)):
        for length, inner in ((16, 1), (64, 1), (128, 1), (1024, 1), (4096, 1), (32, 64), (128, 64), (1024, 64),
                              (128, 1024), (2048, 1024)):  # fmt: skip
            x = _plain(many // (length * inner), length, inner, dtype=dtype)
            yield lambda x=x: x.cumsum(1)
            yield lambda x=x: x.flip(1)
        for length in (8, 64, 256, 1024):
            x = _plain(many // 4 // length, length, dtype=dtype)
            yield lambda x=x: x.topk(min(8, x.shape[-1]), -1)
            yield lambda x=x: x.sort(-1)
        for width in (128, 1024, 2048):
            x, y = _plain(many // width, width, dtype=dtype), _plain(many // width, 1, dtype=dtype)
            yield lambda x=x, y=y: torch.cat((x, y), -1)
            yield lambda x=x: torch.cat((x, x), -1)
            yield lambda x=x: torch.cat((x[:, : x.shape[1] // 2], x[:, 1 : 1 + x.shape[1] // 4]), -1)
            yield lambda x=x: x[:, :-1].contiguous()
            yield lambda x=x: x.view(-1, 4, x.shape[-1]).tril()
            yield lambda x=x: torch.where(x > 0, x, 0.0)
            yield lambda x=x: torch.roll(x, 1, -1)


def lists() -> Iterator[Case]:
    for tensors, elements in ((150, 1024), (600, 1024), (300, 2**17), (150, 2**20), (150, 2**22)):
        one, two, three = ([_plain(elements, dtype=FP32) for _ in range(tensors)] for _ in range(3))
        yield lambda one=one: torch._foreach_mul_(one, 0.9)
        yield lambda one=one, two=two: torch._foreach_lerp_(one, two, 0.1)
        yield lambda one=one, two=two, three=three: torch._foreach_addcmul_(one, two, three, 0.1)
        yield lambda one=one, two=two, three=three: torch._foreach_addcdiv_(one, two, three, 0.1)
        yield lambda one=one: torch._foreach_sqrt(one)
        yield lambda one=one, two=two: torch._foreach_add_(one, two)
        yield lambda one=one: torch._foreach_norm(one)


GROUPS: tuple[Any, ...] = (products, broadcasts, reductions, rows, lookups, scans, lists,
                           _grid_convolutions.cases)  # fmt: skip


def cases() -> Iterator[Case]:
    for group in GROUPS:
        yield from group()
