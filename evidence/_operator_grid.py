"""Operators on a grid of shapes, layouts and types: what `trace_operators.py` times besides those of programs."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Case = Callable[[], Any]
FLOATS = (torch.bfloat16, torch.float32)


def _made(*shape: int, dtype: torch.dtype = torch.bfloat16, last: bool = False) -> Tensor:
    made = torch.empty(shape, dtype=dtype, device="meta")
    if last:
        made = made.to(memory_format=torch.channels_last)
    return made.requires_grad_(dtype.is_floating_point)


def both(call: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Forward and backward."""
    call(*inputs).backward(_like(call(*inputs)))


def _like(out: Tensor) -> Tensor:
    return torch.empty_like(out).detach()


def copies() -> Iterator[Case]:
    for dtype in FLOATS:
        for rows, columns in ((196, 768), (49, 1024), (1024, 1024), (3136, 96), (4096, 320), (577, 64), (2048, 128)):
            x = _made(max(67_000_000 // (rows * columns), 1), rows, columns, dtype=dtype)
            yield lambda x=x: x.transpose(1, 2).contiguous()
        for size, channels in ((112, 64), (56, 256), (14, 768), (7, 2048)):
            x = _made(max(67_000_000 // (size * size * channels), 1), channels, size, size, dtype=dtype)
            yield lambda x=x: x.contiguous(memory_format=torch.channels_last)
            y = x.to(memory_format=torch.channels_last)
            yield lambda y=y: y.contiguous()
        for tokens, heads, width in ((1024, 16, 64), (197, 12, 64), (2048, 32, 128), (49, 4, 32), (4096, 8, 40)):
            x = _made(max(67_000_000 // (tokens * heads * width), 1), tokens, 3, heads, width, dtype=dtype)
            yield lambda x=x: x.permute(2, 0, 3, 1, 4).contiguous()
            yield lambda x=x: x[:, :, 0].transpose(1, 2).contiguous()
            yield lambda x=x: x[:, :, 0].contiguous()
        for size, window, channels in ((56, 7, 128), (28, 7, 256), (64, 8, 96)):
            x = _made(64, size // window, window, size // window, window, channels, dtype=dtype)
            yield lambda x=x: x.permute(0, 1, 3, 2, 4, 5).contiguous()
            flat = _made(64, size, size, channels, dtype=dtype)
            yield lambda flat=flat: torch.roll(flat, (-3, -3), (1, 2))
            yield lambda flat=flat: F.pad(flat, (0, 0, 0, 3, 0, 3))


def broadcasts() -> Iterator[Case]:
    for dtype in FLOATS:
        for batch, heads, seq in ((4, 32, 1024), (16, 12, 512), (64, 8, 256), (256, 4, 49)):
            scores = _made(batch, heads, seq, seq, dtype=dtype)
            masks = (_made(seq, seq, dtype=dtype), _made(batch, 1, seq, seq, dtype=dtype),
                     _made(1, heads, seq, seq, dtype=dtype), _made(batch, 1, 1, seq, dtype=dtype))  # fmt: skip
            for mask in masks:
                yield lambda scores=scores, mask=mask: both(torch.add, scores, mask.detach())
            bools = torch.empty(batch, 1, seq, seq, dtype=torch.bool, device="meta")
            yield lambda scores=scores, bools=bools: scores.detach().masked_fill(bools, -1.0)
            yield lambda scores=scores, bools=bools: torch.where(bools, scores.detach(), 0.0)
            one = torch.empty(batch, heads, seq, 1, dtype=torch.bool, device="meta")
            yield lambda scores=scores, one=one: torch.where(one, 0.0, scores.detach())
        for last, (size, channels) in product((False, True), ((112, 64), (28, 256), (7, 1024))):
            x = _made(max(67_000_000 // (size * size * channels), 1), channels, size, size, dtype=dtype, last=last)
            scale = _made(1, channels, 1, 1, dtype=dtype)
            gate = _made(x.shape[0], channels, 1, 1, dtype=dtype)
            yield lambda x=x, scale=scale: both(torch.add, x, scale)
            yield lambda x=x, gate=gate: both(torch.mul, x, gate)
            if dtype is torch.bfloat16:
                wide = _made(1, channels, 1, 1, dtype=torch.float32)
                yield lambda x=x, wide=wide: both(torch.mul, x, wide)
        for rows, width in ((65536, 1024), (16384, 4096), (200704, 384)):
            x, one = _made(rows // 64, 64, width, dtype=dtype), _made(rows // 64, 1, width, dtype=dtype)
            yield lambda x=x, one=one: both(torch.mul, x, one)
            half = _made(rows, 2 * width, dtype=dtype)
            yield lambda half=half: both(lambda h: F.silu(h.chunk(2, -1)[0]) * h.chunk(2, -1)[1], half)
            yield lambda x=x: both(lambda a: torch.cat((a[..., 1:], a[..., :1]), -1), x)


def reductions() -> Iterator[Case]:
    for dtype in FLOATS:
        for width in (64, 96, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384):
            for many in (2**23, 2**25, 2**27):
                x = _made(many // width, width, dtype=dtype).detach()
                yield lambda x=x: x.sum(0)
                if many == 2**25:
                    yield lambda x=x: x.sum(-1, keepdim=True)
        for last, (size, channels) in product((False, True), ((112, 64), (28, 256), (7, 1024))):
            x = _made(128, channels, size, size, dtype=dtype, last=last).detach()
            yield lambda x=x: x.sum((0, 2, 3))
            yield lambda x=x: x.mean((2, 3), keepdim=True)
            yield lambda x=x: x.sum(0, keepdim=True)
        for batch, heads, seq in ((4, 32, 1024), (16, 12, 512), (256, 4, 49)):
            scores = _made(batch, heads, seq, seq, dtype=dtype).detach()
            yield lambda scores=scores: scores.sum(0, keepdim=True)
            yield lambda scores=scores: scores.sum(1, keepdim=True)
            yield lambda scores=scores: scores.amax(-1, keepdim=True)
            yield lambda scores=scores: scores.cumsum(-1)
            yield lambda scores=scores: scores.cumsum(-2)


def rows() -> Iterator[Case]:
    for dtype in FLOATS:
        for width in (49, 64, 196, 197, 256, 512, 577, 1024, 1500, 2048, 4096):
            for many in (2**23, 2**26):
                x = _made(many // width, width, dtype=dtype)
                yield lambda x=x: both(lambda a: torch.softmax(a, -1), x)
        for width in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 8192):
            for many in (2**23, 2**25, 2**27):
                x = _made(many // width, width, dtype=dtype)
                weight, bias = _made(width, dtype=dtype), _made(width, dtype=dtype)
                yield lambda x=x, w=weight, b=bias: both(lambda a, w, b: F.layer_norm(a, w.shape, w, b), x, w, b)
        for last, (size, channels) in product((False, True), ((64, 320), (32, 640), (16, 1280), (128, 128))):
            x = _made(16, channels, size, size, dtype=dtype, last=last)
            weight, bias = _made(channels, dtype=dtype), _made(channels, dtype=dtype)
            yield lambda x=x, w=weight, b=bias: both(lambda a, w, b: F.group_norm(a, 32, w, b), x, w, b)
            wide, low = _made(channels, dtype=torch.float32), _made(channels, dtype=torch.float32)
            yield lambda x=x, w=wide, b=low: both(
                lambda a, w, b: F.batch_norm(a, w.detach(), b.detach(), w, b, training=True), x, w, b
            )


def planes() -> Iterator[Case]:
    """Pooling, resizing and convolutions."""
    for dtype, last in product(FLOATS, (False, True)):
        for size, channels in ((112, 64), (28, 256)):
            x = _made(64, channels, size, size, dtype=dtype, last=last)
            yield lambda x=x: both(lambda a: F.max_pool2d(a, 3, 2, 1), x)
            yield lambda x=x: both(lambda a: F.avg_pool2d(a, 2), x)
            yield lambda x=x: both(lambda a: F.adaptive_avg_pool2d(a, 1), x)
            yield lambda x=x: both(lambda a: F.interpolate(a, scale_factor=2.0, mode="nearest"), x)
            yield lambda x=x: both(
                lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear", align_corners=False), x
            )
            yield lambda x=x: both(lambda a: F.hardswish(a), x)
        for rows_, inner, outer, size, kernel, stride, groups in (
            (64, 3, 64, 224, 7, 2, 1), (64, 3, 768, 224, 16, 16, 1), (64, 3, 96, 224, 4, 4, 1),
            (64, 3, 32, 224, 3, 2, 1),
            (64, 64, 64, 56, 3, 1, 1), (64, 64, 256, 56, 1, 1, 1), (64, 256, 64, 56, 1, 1, 1),
            (64, 128, 128, 56, 3, 2, 1), (64, 256, 256, 14, 3, 1, 1), (64, 512, 512, 7, 3, 1, 1),
            (64, 1024, 2048, 14, 1, 2, 1), (8, 320, 320, 64, 3, 1, 1), (8, 640, 640, 32, 3, 1, 1),
            (8, 1280, 1280, 16, 3, 1, 1), (8, 2560, 1280, 16, 3, 1, 1), (64, 64, 128, 56, 2, 2, 1),
            (64, 96, 96, 112, 3, 1, 96), (64, 192, 192, 56, 5, 2, 192), (64, 672, 672, 14, 5, 1, 672),
            (64, 128, 128, 56, 7, 1, 128), (64, 512, 512, 14, 7, 1, 512), (64, 144, 144, 56, 3, 1, 6),
            (64, 512, 512, 28, 3, 1, 64), (64, 240, 240, 28, 3, 1, 10),
        ):  # fmt: skip
            x = _made(rows_, inner, size, size, dtype=dtype, last=last)
            weight = _made(outer, inner // groups, kernel, kernel, dtype=dtype, last=last)
            pad = 0 if kernel == stride else kernel // 2
            yield lambda x=x, w=weight, s=stride, p=pad, g=groups: both(
                lambda a, b: F.conv2d(a, b, stride=s, padding=p, groups=g), x, w
            )
    for dtype in FLOATS:
        for inner, outer, length, kernel, stride in ((80, 1024, 3000, 3, 1), (1024, 1024, 3000, 3, 2),
                                                     (1, 512, 160000, 10, 5), (512, 512, 32000, 3, 2)):  # fmt: skip
            x, weight = _made(8, inner, length, dtype=dtype), _made(outer, inner, kernel, dtype=dtype)
            yield lambda x=x, w=weight, s=stride, k=kernel: both(
                lambda a, b: F.conv1d(a, b, stride=s, padding=k // 2), x, w
            )
        x, weight = _made(8, 1536, 2048, dtype=dtype), _made(1536, 1, 4, dtype=dtype)
        yield lambda x=x, w=weight: both(lambda a, b: F.conv1d(a, b, padding=3, groups=1536), x, w)
        x, weight = _made(16, 512, 28, 28, dtype=dtype), _made(512, 256, 2, 2, dtype=dtype)
        yield lambda x=x, w=weight: both(lambda a, b: F.conv_transpose2d(a, b, stride=2), x, w)


def lookups() -> Iterator[Case]:
    for dtype in FLOATS:
        for words, width, tokens in ((32000, 2048, 8192), (50304, 768, 16384), (256000, 1024, 8192), (512, 1024, 8192),
                                     (2, 768, 16384)):  # fmt: skip
            table = _made(words, width, dtype=dtype)
            index = torch.empty(tokens, dtype=torch.int64, device="meta")
            yield lambda t=table, i=index: both(lambda t: F.embedding(i, t), t)
        for rows_, width in ((65536, 1024), (32768, 2048)):
            x, index = _made(rows_, width, dtype=dtype), torch.empty(rows_, dtype=torch.int64, device="meta")
            yield lambda x=x, i=index: both(lambda a: a[i], x)
            yield lambda x=x, i=index: both(lambda a: a.index_select(0, i), x)
            across = torch.empty(rows_, width, dtype=torch.int64, device="meta")
            yield lambda x=x, a=across: both(lambda t: t.gather(0, a), x)
            yield lambda x=x: x.detach().topk(8, -1)
            yield lambda x=x: x.detach().sort(-1)


GROUPS = (copies, broadcasts, reductions, rows, planes, lookups)


def cases() -> Iterator[Case]:
    for group in GROUPS:
        yield from group()
