"""Random quantization: levels evenly spaced up to the largest of a block. With 5 levels, 0.6 of the largest becomes
0.5 with probability 0.6 and 0.75 with 0.4."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_count
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._levels import decode_levels, encode_levels, level_bytes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RandomQuantization(Compressor):
    name: ClassVar[str] = "random_quantization"

    levels: int = 5
    """from zero to the largest, both counted; negative numbers have theirs besides"""
    block: int = 128

    def __post_init__(self) -> None:
        if not 2 <= self.levels <= 128:
            raise ValueError(f"levels: {self.levels} is out of range; write a whole number from 2 to 128")
        check_count("block", self.block, 2**24)

    def wire_bytes(self, d: int) -> int:
        return level_bytes(d, self.block, self.levels - 1)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        return encode_levels(row, self.block, self.levels - 1, "largest", draw)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        return decode_levels(payload, d, self.block, self.levels - 1)

    def omega(self, d: int) -> float | None:
        """A number's variance is at most a quarter step squared, and at most its size times a step."""
        held, steps = min(self.block, d), self.levels - 1
        return float(min(held / (4 * steps**2), held**0.5 / steps))


COMPRESSOR = RandomQuantization
