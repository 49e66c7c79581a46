"""Int4: the nearest of 15 levels, 4 bits a number, and a step of a seventh of the largest of each group.

A step below the smallest normal fp32 number sends zeros; a group with a number that is not finite comes out as NaN
everywhere, so that everyone sees it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, blocks, check_count, in_blocks
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._fused import FusedKernels, fits
from shardwise.plugins.compressors._sizes import INFINITE, size_bits
from shardwise.plugins.compressors._words import pack_words, unpack_words, word_bytes

if TYPE_CHECKING:
    from torch import Tensor, device

LEVELS = 7
"""on either side of zero"""
NORMAL = 2.0**-126
"""the smallest fp32 number with all its digits; the inverse of a smaller one may be infinite"""


@dataclass(frozen=True)
class Int4(Compressor):
    name: ClassVar[str] = "int4"

    group: int = 128

    def __post_init__(self) -> None:
        check_count("group", self.group, 2**24)

    def wire_bytes(self, d: int) -> int:
        return word_bytes(d, 4) + 4 * blocks(d, self.group)[0]

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        d = row.numel()
        split = in_blocks(row, *blocks(d, self.group))
        largest = size_bits(split).amax(dim=1).clamp_max(INFINITE).view(torch.float32)
        step = largest * (1.0 / LEVELS)
        usable = (step >= NORMAL) & (step < torch.inf)
        inverse = torch.where(usable, torch.ones_like(step) / step, torch.zeros_like(step))
        level = torch.where(usable[:, None], split * inverse[:, None], torch.zeros_like(split)).round()
        codes = level.reshape(-1)[:d].to(torch.int32) & 15
        return pack_words(codes, 4), step

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        import torch

        words, step = payload
        codes = unpack_words(words, 4, d)
        split = in_blocks(((codes << 28) >> 28).to(torch.float32), *blocks(d, self.group))
        return (split * step[:, None]).reshape(-1)[:d]

    def delta(self, d: int) -> float | None:
        """The largest comes out whole; every other misses by half a step or by itself, whichever is less."""
        halves = (2.0 * LEVELS) ** 2
        return halves / (halves + min(self.group, d) - 1) * (1.0 - 2.0**-20)

    def kernels(self, device: "device") -> FusedKernels | None:
        if not fits(device, self.group, least=32, most=1024):
            return None
        from shardwise.plugins.compressors._fused.int4 import Int4Kernels

        return Int4Kernels(self.group)


COMPRESSOR = Int4
