"""Sign: one bit a number and the mean size of each block; zero travels as plus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.compressors._bits import pack, packed_bytes, unpack
from shardwise.compressors._contract import Compressor, Payload, blocks, check_count, in_blocks
from shardwise.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sign(Compressor):
    name: ClassVar[str] = "sign"

    block: int = 4096

    def __post_init__(self) -> None:
        check_count("block", self.block, 2**24)

    def wire_bytes(self, d: int) -> int:
        return packed_bytes(d, 1) + 4 * blocks(d, self.block)[0]

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        d = row.numel()
        count, length = blocks(d, self.block)
        held = torch.full((count,), float(length), device=row.device)
        held[-1] = d - (count - 1) * length
        return pack(row >= 0, 1), in_blocks(row, count, length).abs().sum(dim=1) / held

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        import torch

        bits, scale = payload
        signs = unpack(bits, 1, d).to(torch.float32) * 2.0 - 1.0
        split = in_blocks(signs, *blocks(d, self.block))
        return (split * scale[:, None]).reshape(-1)[:d]

    def delta(self, d: int) -> float | None:
        """|x|_1^2 / (d |x|_2^2) of the block, at worst one number that is not zero."""
        return 1.0 / min(self.block, d)


COMPRESSOR = Sign
