"""TernGrad: minus, zero or plus the largest of a block, 2 bits a number. Wen et al. 2017, arXiv:1705.07878."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_count
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._levels import decode_levels, encode_levels, level_bytes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Terngrad(Compressor):
    name: ClassVar[str] = "terngrad"

    block: int = 4096

    def __post_init__(self) -> None:
        check_count("block", self.block, 2**24)

    def wire_bytes(self, d: int) -> int:
        return level_bytes(d, self.block, 1)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        return encode_levels(row, self.block, 1, "largest", draw)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        return decode_levels(payload, d, self.block, 1)

    def omega(self, d: int) -> float | None:
        """Sum of largest * |x| - x^2, with |x|_1 <= sqrt(block) |x|_2."""
        return float(min(self.block, d) ** 0.5 - 1.0)


COMPRESSOR = Terngrad
