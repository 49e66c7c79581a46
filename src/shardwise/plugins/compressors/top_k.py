"""Top-K, exact: the k largest in size, fp32 values and int32 places."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_ratio, kept
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TopK(Compressor):
    name: ClassVar[str] = "top_k"

    ratio: float = 0.01
    """share of the numbers kept"""

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def wire_bytes(self, d: int) -> int:
        return 8 * kept(self.ratio, d)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        places = row.abs().topk(kept(self.ratio, row.numel()), sorted=False).indices
        return row[places], places.to(torch.int32)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        values, places = payload
        return values.new_zeros(d).index_put_((places.long(),), values)

    def delta(self, d: int) -> float | None:
        return kept(self.ratio, d) / d

    def repeated(self, rounds: int) -> Compressor | None:
        """The k largest of what is left, again and again, are the rounds * k largest."""
        return TopK(min(self.ratio * rounds, 1.0))


COMPRESSOR = TopK
