"""Sign: one bit a number and the mean size of each block; zero travels as plus.

Signs fill 32-bit words. A block with a number that is not finite has an infinite size: as in a dense mean, everyone
sees it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, blocks, check_count, in_blocks
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._fused import FusedKernels, fits
from shardwise.plugins.compressors._sizes import mean_sizes
from shardwise.plugins.compressors._words import pack_words, unpack_words, word_bytes

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True)
class Sign(Compressor):
    name: ClassVar[str] = "sign"

    block: int = 4096

    def __post_init__(self) -> None:
        check_count("block", self.block, 2**24)

    def wire_bytes(self, d: int) -> int:
        return word_bytes(d, 1) + 4 * blocks(d, self.block)[0]

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        d = row.numel()
        count, length = blocks(d, self.block)
        held = torch.full((count,), float(length), device=row.device)
        held[-1] = d - (count - 1) * length
        return pack_words((row >= 0).to(torch.int32), 1), mean_sizes(in_blocks(row, count, length), held)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        import torch

        words, scale = payload
        signs = unpack_words(words, 1, d).to(torch.float32) * 2.0 - 1.0
        split = in_blocks(signs, *blocks(d, self.block))
        return (split * scale[:, None]).reshape(-1)[:d]

    def delta(self, d: int) -> float | None:
        """|x|_1^2 / (d |x|_2^2) of the block, at worst one number that is not zero."""
        return 1.0 / min(self.block, d)

    def kernels(self, device: "device") -> FusedKernels | None:
        if not fits(device, self.block, least=128, most=16384):
            return None
        from shardwise.plugins.compressors._fused.sign import SignKernels

        return SignKernels(self.block)


COMPRESSOR = Sign
