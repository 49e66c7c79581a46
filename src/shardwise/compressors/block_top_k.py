"""Top-K of every block: fixed message, short places. bf16 values and 16-bit places: 4 bytes for each number kept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.compressors._contract import Compressor, Payload, blocks, check_count, check_ratio, in_blocks, kept
from shardwise.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor

_BF16_LOSS = 2.0**-16
"""square of bf16's rounding, 2^-9, with room: what is lost of the numbers kept"""


@dataclass(frozen=True)
class BlockTopK(Compressor):
    name: ClassVar[str] = "block_top_k"

    ratio: float = 0.01
    block: int = 4096

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        check_count("block", self.block, 2**15)

    def wire_bytes(self, d: int) -> int:
        count, length = blocks(d, self.block)
        return 4 * count * kept(self.ratio, length)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        count, length = blocks(row.numel(), self.block)
        split = in_blocks(row, count, length)
        places = split.abs().topk(kept(self.ratio, length), dim=1, sorted=False).indices
        return split.gather(1, places).to(torch.bfloat16), places.to(torch.int16)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        import torch

        values, places = payload
        split = torch.zeros(blocks(d, self.block), device=values.device)
        return split.scatter_(1, places.long(), values.float()).view(-1)[:d]

    def delta(self, d: int) -> float | None:
        """Each block keeps its share; the last may be shorter than its length, which keeps more of it."""
        _, length = blocks(d, self.block)
        return kept(self.ratio, length) / length * (1.0 - _BF16_LOSS)


COMPRESSOR = BlockTopK
