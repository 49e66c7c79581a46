"""An unbiased compressor scaled by 1 / (1 + omega) contracts with delta = 1 / (1 + omega): for error feedback."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ScaledCompressor(Compressor):
    name: ClassVar[str] = "contracted"

    inner: Compressor

    def wire_bytes(self, d: int) -> int:
        return self.inner.wire_bytes(d)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        return self.inner.encode(row, draw)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":
        return self.inner.decode(payload, d, draw) / (1.0 + self._omega(d))

    def delta(self, d: int) -> float | None:
        return 1.0 / (1.0 + self._omega(d))

    def _omega(self, d: int) -> float:
        omega = self.inner.omega(d)
        assert omega is not None  # contracted() wraps only unbiased ones
        return omega


def contracted(compressor: Compressor) -> Compressor:
    """The compressor itself if it contracts, else its scaled form."""
    return compressor if compressor.delta(2) is not None else ScaledCompressor(compressor)
