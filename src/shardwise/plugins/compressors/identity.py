"""Identity: nothing is lost; what every compressed method must equal with it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Identity(Compressor):
    name: ClassVar[str] = "identity"
    linear: ClassVar[bool] = True

    def wire_bytes(self, d: int) -> int:
        return 4 * d

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        return (row.clone(),)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        return payload[0]

    def delta(self, d: int) -> float | None:  # noqa: ARG002
        return 1.0

    def omega(self, d: int) -> float | None:  # noqa: ARG002
        return 0.0

    def repeated(self, rounds: int) -> Compressor | None:  # noqa: ARG002
        return self


COMPRESSOR = Identity
