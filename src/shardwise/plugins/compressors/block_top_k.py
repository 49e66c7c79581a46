"""Top-K of every block: fixed message, short places. A bf16 value and a 16-bit place make one word of 4 bytes.

The largest are those whose bf16 sizes are; of equal ones the first. Words are in the order of their places. NaN counts
as larger than infinity, and both travel; zeros travel as plus zero.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import (
    Compressor,
    Payload,
    blocks,
    check_count,
    check_ratio,
    in_blocks,
    kept,
)
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._fused import FusedKernels, fits
from shardwise.plugins.compressors._sizes import size_bits

if TYPE_CHECKING:
    from torch import Tensor, device

_BF16_LOSS = 2.0**-6
"""bf16 rounds by at most 2^-8, so squares of numbers it takes for equal differ by at most four times that"""
PLACES = 2**15
NAN = 0x7FC00000
"""every NaN is this one"""


def bf16_sizes(row: "Tensor") -> "Tensor":
    """The bits of |x| as bf16, to the nearest, ties to even; int32."""
    sizes = size_bits(row).clamp_max_(NAN)
    odd = (sizes >> 16).bitwise_and_(1)
    return sizes.add_(odd).add_(0x7FFF).bitwise_right_shift_(16)


@dataclass(frozen=True)
class BlockTopK(Compressor):
    name: ClassVar[str] = "block_top_k"

    ratio: float = 0.01
    block: int = 4096

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        check_count("block", self.block, PLACES)

    def wire_bytes(self, d: int) -> int:
        count, length = blocks(d, self.block)
        return 4 * count * kept(self.ratio, length)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        count, length = blocks(row.numel(), self.block)
        split = in_blocks(row, count, length)
        sizes = bf16_sizes(split)
        order = torch.arange(PLACES - 1, PLACES - 1 - length, -1, dtype=torch.int32, device=row.device)
        largest = torch.add(order, sizes, alpha=PLACES).topk(kept(self.ratio, length), dim=1, sorted=False).values
        places = (PLACES - 1 - (largest & (PLACES - 1))).sort(dim=1).values
        chosen = split.gather(1, places.long())
        size = bf16_sizes(chosen)
        value = torch.where((chosen < 0) & (size > 0), size - 0x8000, size)
        return (value * 0x10000 + places,)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        import torch

        (words,) = payload
        split = torch.zeros(blocks(d, self.block), device=words.device)
        values = (words & -0x10000).view(torch.float32)
        return split.scatter_(1, (words & 0xFFFF).long(), values).view(-1)[:d]

    def delta(self, d: int) -> float | None:
        """Each block keeps its share; the last may be shorter than its length, which keeps more of it."""
        _, length = blocks(d, self.block)
        return kept(self.ratio, length) / length * (1.0 - _BF16_LOSS)

    def kernels(self, device: "device") -> FusedKernels | None:
        if not fits(device, self.block, least=128, most=8192):
            return None
        from shardwise.plugins.compressors._fused.block_top_k import BlockTopKKernels

        return BlockTopKKernels(self.block, self.ratio)


COMPRESSOR = BlockTopK
