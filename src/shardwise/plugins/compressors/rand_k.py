"""Rand-K: k places drawn alike by all workers, so only values travel and an all-reduce can add them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_ratio, kept
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RandK(Compressor):
    name: ClassVar[str] = "rand_k"
    linear: ClassVar[bool] = True

    ratio: float = 0.05
    unbiased: bool = True
    """scaled by d / k; without it the error is smaller, and biased: for error feedback"""

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def _places(self, d: int, draw: Draw, like: "Tensor") -> "Tensor":
        return draw.shared().bits(d, like.device).topk(kept(self.ratio, d), sorted=False).indices

    def wire_bytes(self, d: int) -> int:
        return 4 * kept(self.ratio, d)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        d = row.numel()
        values = row[self._places(d, draw, row)]
        return (values * (d / kept(self.ratio, d)),) if self.unbiased else (values,)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":
        values = payload[0]
        return values.new_zeros(d).index_put_((self._places(d, draw, values),), values)

    def delta(self, d: int) -> float | None:
        return None if self.unbiased else kept(self.ratio, d) / d

    def omega(self, d: int) -> float | None:
        return d / kept(self.ratio, d) - 1.0 if self.unbiased else None


COMPRESSOR = RandK
