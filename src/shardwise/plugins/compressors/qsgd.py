"""QSGD: levels of the Euclidean norm of a bucket. Alistarh et al. 2017, arXiv:1610.02132."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_count
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._levels import decode_levels, encode_levels, level_bytes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Qsgd(Compressor):
    name: ClassVar[str] = "qsgd"

    steps: int = 4
    """levels above zero"""
    bucket: int = 512

    def __post_init__(self) -> None:
        check_count("steps", self.steps, 127)
        check_count("bucket", self.bucket, 2**24)

    def wire_bytes(self, d: int) -> int:
        return level_bytes(d, self.bucket, self.steps)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        return encode_levels(row, self.bucket, self.steps, "norm", draw)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        return decode_levels(payload, d, self.bucket, self.steps)

    def omega(self, d: int) -> float | None:
        held = min(self.bucket, d)
        return float(min(held / self.steps**2, held**0.5 / self.steps))


COMPRESSOR = Qsgd
