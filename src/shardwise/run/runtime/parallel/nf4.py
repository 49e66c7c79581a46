"""Frozen matrices in four bits (QLoRA, arXiv:2305.14314, section 3): sixteen levels at quantiles of a normal, a scale
for each block of 64, and with double quantisation these scales in eight bits around their mean. Codes and scales are
those of bitsandbytes; a product writes the matrix out first."""

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from shardwise.run.runtime.fused import fused
from shardwise.spec.tuning import NF4_BLOCK, SCALES_BLOCK

LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""NF4 (arXiv:2305.14314, appendix E)"""
DECADES = 7
"""of the eight-bit numbers that scales are rounded to: each is cut twice as finely as the one below
(arXiv:2110.02861)"""


@cache
def scale_levels() -> tuple[float, ...]:
    """The 256 values of dynamic quantisation."""
    found = [0.0, 1.0]
    for decade in range(DECADES):
        edges = np.linspace(0.1, 1.0, 2**decade + 1, dtype=np.float32)
        middles = (edges[:-1] + edges[1:]) / 2.0 * np.float32(10.0 ** (decade - DECADES + 1))
        found += [sign * float(middle) for middle in middles for sign in (-1.0, 1.0)]
    return tuple(sorted(found))


@dataclass(frozen=True)
class FourBitMatrix:
    """A frozen matrix of this rank."""

    codes: Tensor
    """two numbers a byte, the first in its upper half"""
    scales: Tensor
    """of blocks; where they are quantised too, codes of one byte"""
    shape: tuple[int, ...]
    levels: Tensor
    scale_scales: Tensor | None = None
    """of blocks of scales"""
    mean: Tensor | None = None
    levels_of_scales: Tensor | None = None

    @property
    def scale_bytes(self) -> int:
        return sum(t.nbytes for t in (self.scales, self.scale_scales, self.mean) if t is not None)

    def dense(self, dtype: torch.dtype) -> Tensor:
        scales, codes, count = self.scales, self.codes, prod(self.shape)
        if self.scale_scales is not None and self.mean is not None and self.levels_of_scales is not None:
            bytes_ = _whole(scales, SCALES_BLOCK)
            scales = _scales(bytes_, self.scale_scales, self.levels_of_scales, self.mean).view(-1)[: len(scales)]
        written = _written_out(_whole(codes, NF4_BLOCK // 2), scales, self.levels, dtype).view(-1)
        return (written if len(written) == count else written[:count]).view(self.shape)


def in_four_bits(weight: Tensor, *, double: bool) -> FourBitMatrix:
    """`double`: scales are quantised too."""
    levels = torch.tensor(LEVELS, dtype=torch.float32, device=weight.device)
    codes, scales = _rounded(weight.detach().reshape(-1).float(), levels, NF4_BLOCK)
    if len(codes) % 2:
        codes = torch.cat((codes, codes.new_zeros(1)))
    packed, shape = (codes[::2] << 4) | codes[1::2], tuple(weight.shape)
    if not double:
        return FourBitMatrix(packed, scales, shape, levels)
    mean, finer = scales.mean(), torch.tensor(scale_levels(), dtype=torch.float32, device=weight.device)
    bytes_, largest = _rounded(scales - mean, finer, SCALES_BLOCK)
    return FourBitMatrix(packed, bytes_, shape, levels, largest, mean, finer)


def _whole(values: Tensor, block: int) -> Tensor:
    """With the last block filled up with zeros."""
    short = -len(values) % block
    return torch.cat((values, values.new_zeros(short))) if short else values


def _rounded(values: Tensor, levels: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(number of the nearest level, largest magnitude of each block)."""
    blocks = _whole(values, block).view(-1, block)
    largest = blocks.abs().amax(1)
    shares = (blocks * (1.0 / largest.clamp(min=1e-38)).unsqueeze(1)).view(-1)[: len(values)]
    return torch.bucketize(shares, (levels[:-1] + levels[1:]) / 2).to(torch.uint8), largest


@fused()
def _scales(bytes_: Tensor, largest: Tensor, levels: Tensor, mean: Tensor) -> Tensor:
    return levels[bytes_.int()].view(len(largest), SCALES_BLOCK) * largest.unsqueeze(1) + mean


@fused()
def _written_out(codes: Tensor, scales: Tensor, levels: Tensor, dtype: torch.dtype) -> Tensor:
    pairs = torch.stack((codes >> 4, codes & 15), dim=1).int()
    return (levels[pairs].view(len(scales), NF4_BLOCK) * scales.unsqueeze(1)).to(dtype)
