"""Convolutions on a grid of groups, kernels, sizes, layouts and types; each gradient by itself."""

from collections.abc import Iterator, Sequence
from itertools import product

import torch

from _operator_grid import Case, _made

PARTS = {"input": [True, False, False], "weight": [False, True, False]}
ELEMENTS = 13_000_000
"""of an input, about: 64 pictures of 64 channels and 56 x 56 places"""
Shape = tuple[int, int, int, int, int, int]
"""channels in and out, size, kernel, stride, groups"""
KINDS = ((torch.bfloat16, False), (torch.bfloat16, True), (torch.float32, False), (torch.float32, True))


def grouped() -> Iterator[Shape]:
    for each, (channels, size) in product((2, 4, 8, 16, 32, 64), ((64, 56), (256, 28), (512, 14), (1024, 7))):
        if channels > each:
            yield channels, channels, size, 3, 1, channels // each
    for each, (channels, size) in product((4, 16, 24, 48), ((192, 56), (384, 28))):
        yield channels, channels, size, 3, 2, channels // each
    for each in (8, 24):
        yield 192, 192, 28, 5, 1, 192 // each


def depthwise() -> Iterator[Shape]:
    for kernel, (channels, size) in product((3, 5, 7), ((32, 112), (144, 56), (240, 28), (672, 14), (1152, 7))):
        yield channels, channels, size, kernel, 1, channels
    for kernel, (channels, size) in product((3, 5), ((96, 112), (192, 56), (480, 28))):
        yield channels, channels, size, kernel, 2, channels


def dense() -> Iterator[Shape]:
    for inner, outer, size in ((16, 96, 112), (32, 16, 112), (64, 256, 56), (256, 64, 56), (24, 144, 56),
                               (256, 128, 56), (144, 40, 28), (512, 128, 28), (128, 512, 28),
                               (672, 112, 14), (1024, 256, 14),
                               (256, 1024, 14), (1152, 320, 7), (512, 2048, 7), (2048, 512, 7)):  # fmt: skip
        yield inner, outer, size, 1, 1, 1
    for inner, outer, size in ((32, 32, 112), (64, 64, 56), (128, 32, 56), (128, 128, 28), (128, 32, 28),
                               (192, 192, 64), (256, 256, 14), (128, 32, 14), (384, 384, 32), (768, 768, 16),
                               (512, 512, 7)):  # fmt: skip
        yield inner, outer, size, 3, 1, 1
    for inner, outer, size, kernel in ((64, 128, 56, 3), (256, 512, 28, 1), (512, 1024, 14, 1), (96, 192, 56, 2),
                                       (256, 256, 28, 3), (320, 512, 32, 3), (64, 64, 64, 8)):  # fmt: skip
        yield inner, outer, size, kernel, kernel if kernel in (2, 8) else 2, 1


def few_channels() -> Iterator[Shape]:
    for inner, outer, size, kernel, stride in ((3, 32, 224, 3, 2), (3, 64, 224, 7, 2), (3, 64, 512, 7, 4),
                                               (3, 96, 224, 4, 4), (3, 768, 224, 16, 16), (3, 1024, 224, 14, 14),
                                               (3, 768, 224, 32, 32), (1, 64, 256, 3, 1), (4, 192, 64, 3, 1),
                                               (4, 1024, 32, 2, 2), (6, 128, 64, 3, 1)):  # fmt: skip
        yield inner, outer, size, kernel, stride, 1


def along_time() -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """Rows, channels in and out, length, kernel, stride, groups."""
    yield from ((8, 80, 768, 3000, 3, 1, 1), (8, 768, 768, 3000, 3, 2, 1), (8, 1, 512, 160000, 10, 5, 1),
                (8, 512, 512, 31999, 3, 2, 1), (8, 512, 512, 7999, 3, 2, 1), (8, 512, 512, 1999, 2, 2, 1),
                (16, 256, 256, 1024, 5, 1, 1), (16, 512, 1024, 512, 1, 1, 1), (8, 128, 128, 8000, 7, 1, 1),
                (8, 64, 128, 16000, 8, 4, 1),
                (8, 768, 768, 499, 128, 1, 16), (8, 1024, 1024, 499, 128, 1, 16), (8, 512, 512, 499, 19, 1, 16),
                (8, 256, 256, 2000, 9, 1, 4), (16, 512, 512, 1000, 3, 1, 8),
                (8, 1536, 1536, 2048, 4, 1, 1536), (4, 2304, 2304, 1024, 4, 1, 2304), (16, 512, 512, 500, 31, 1, 512),
                (16, 256, 256, 1500, 15, 1, 256), (8, 512, 512, 2000, 3, 1, 512))  # fmt: skip


def cases() -> Iterator[Case]:
    for dtype, last in KINDS:
        shapes = [*grouped(), *depthwise(), *dense(), *few_channels()]
        for inner, outer, size, kernel, stride, groups in shapes if dtype is torch.bfloat16 else shapes[::2]:
            rows = max(min(ELEMENTS // (inner * size * size), 256), 8)
            pad = 0 if kernel == stride else kernel // 2
            yield from _each((rows, inner, size, size), (outer, inner // groups, kernel, kernel), [stride] * 2,
                             [pad] * 2, groups, dtype, last)  # fmt: skip
        if not last:
            for rows, inner, outer, length, kernel, stride, groups in along_time():
                yield from _each((rows, inner, length), (outer, inner // groups, kernel), [stride], [kernel // 2],
                                 groups, dtype, last)  # fmt: skip
            for inner, outer, size in ((512, 256, 28), (256, 128, 56), (64, 64, 64)):
                yield from _each((16, inner, size, size), (inner, outer, 2, 2), [2, 2], [0, 0], 1, dtype, last,
                                 transposed=True)  # fmt: skip


def _each(
    shape: Sequence[int], weights: Sequence[int], stride: list[int], pad: list[int], groups: int, dtype: torch.dtype,
    last: bool, *, transposed: bool = False,
) -> Iterator[Case]:  # fmt: skip
    x, weight = (_made(*sizes, dtype=dtype, last=last).detach() for sizes in (shape, weights))
    ones, none = [1] * len(stride), [0] * len(stride)
    fixed = (stride, pad, ones, transposed, none, groups)
    forward, backward = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default
    yield lambda: forward(x, weight, None, *fixed)
    gradient = forward(x, weight, None, *fixed)
    if last:  # as CUDA gives it; tensors without values do not say so
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    for part, mask in PARTS.items():
        if part == "weight" or x.shape[1] >= 8:
            yield lambda mask=mask: backward(gradient, x, weight, None, *fixed, mask)
