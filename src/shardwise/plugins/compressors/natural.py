"""Natural compression: sign and exponent, 9 bits; the mantissa decides the odds of the next power of two.

Horvath et al. 2019, arXiv:1905.10988. Done on the bits: adding 23 random bits carries into the exponent with exactly
that probability.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._bits import pack, packed_bytes, unpack
from shardwise.plugins.compressors._contract import Compressor, Payload
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 254
"""exponent field of the largest power of two fp32 has; 255 would be infinity"""


@dataclass(frozen=True)
class Natural(Compressor):
    name: ClassVar[str] = "natural"

    def wire_bytes(self, d: int) -> int:
        return d + packed_bytes(d, 1)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        import torch

        whole = row.view(torch.int32).to(torch.int64)
        raised = (whole & 0x7FFFFFFF) + (draw.bits(row.numel(), row.device) >> 9)
        exponent = (raised >> 23).clamp_max(_LARGEST).to(torch.uint8)
        return exponent, pack(row < 0, 1)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        import torch

        exponent, negative = payload
        size = (exponent.to(torch.int32) << 23).view(torch.float32)
        return torch.where(unpack(negative, 1, d) > 0, -size, size)

    def omega(self, d: int) -> float | None:  # noqa: ARG002
        return 0.125


COMPRESSOR = Natural
