"""What a compressor must say about itself.

It turns one row of fp32 numbers into a message of fixed size and back. Contractive: the squared error is at most
(1 - delta) of the row's square, for randomized ones on average. Unbiased: the mean of what comes out is what went in,
and the squared error is on average at most omega of the row's square.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._fused import FusedKernels
from shardwise.registry import closest

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor, device

Payload = tuple["Tensor", ...]


@dataclass(frozen=True)
class Compressor(ABC):
    name: ClassVar[str]
    linear: ClassVar[bool] = False
    """the mean of the messages decodes to the mean of the rows, so an all-reduce may add them"""

    @abstractmethod
    def wire_bytes(self, d: int) -> int:
        """Bytes of the message of a row of d numbers, exactly."""

    @abstractmethod
    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        """The message, as tensors whose bytes are what is sent."""

    @abstractmethod
    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":
        """The row as the receiver has it; `draw` is the sender's."""

    def delta(self, d: int) -> float | None:  # noqa: ARG002
        """Guaranteed contraction, or None where there is none."""
        return None

    def omega(self, d: int) -> float | None:  # noqa: ARG002
        """Bound on the variance of an unbiased one, or None where it is biased."""
        return None

    def repeated(self, rounds: int) -> "Compressor | None":
        """One compressor that equals compressing the remainder `rounds` times, if there is one."""
        return self if rounds == 1 else None

    def kernels(self, device: "device") -> FusedKernels | None:  # noqa: ARG002
        """What does the work of `encode` and `decode` in one pass on this device, bit for bit, if there is such."""
        return None

    @classmethod
    def of(cls, **settings: float | int | bool) -> "Self":
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ValueError(f"{cls.name}: no setting {name!r}; {closest(name, known) if known else 'it has none'}")
        return cls(**settings)


def check_ratio(ratio: float) -> None:
    if not 0.0 < ratio <= 1.0:
        raise ValueError(f"ratio: {ratio:g} is out of range; write the share kept, above 0 and at most 1")


def check_count(what: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ValueError(f"{what}: {value} is out of range; write a whole number from 1 to {most:,}")


def kept(ratio: float, d: int) -> int:
    return min(max(round(ratio * d), 1), d)


def blocks(d: int, block: int) -> tuple[int, int]:
    """(number of blocks, their length): blocks are never longer than the row."""
    length = min(block, d)
    return ceil(d / length), length


def in_blocks(row: "Tensor", count: int, length: int) -> "Tensor":
    """The row as (count, length), zeros behind its end."""
    from torch.nn.functional import pad

    return pad(row, (0, count * length - row.numel())).view(count, length)
