"""Compressed error feedback in one pass over memory: Triton kernels, one file each.

The reference of each is the compressor of its name: `encode` and `decode` in torch, on any device. A kernel gives the
same bits for any input, so that who has it and who does not can work together; only NaNs may differ in their payload.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device

    from shardwise.plugins.compressors._contract import Payload


class FusedKernels(ABC):
    """For rows of fp32 without gaps in memory."""

    def feed_back(self, row: "Tensor", rest: "Tensor", left: "Tensor") -> "Payload":
        """The message of rest + row; what it leaves out of that goes to `left`, another tensor."""
        return self.encoded(row, rest, left, track=False)

    def track(self, row: "Tensor", estimate: "Tensor", moved: "Tensor") -> "Payload":
        """The message of row - estimate; the estimate plus what it says goes to `moved`, another tensor."""
        return self.encoded(row, estimate, moved, track=True)

    @abstractmethod
    def encoded(self, row: "Tensor", held: "Tensor", out: "Tensor", *, track: bool) -> "Payload":
        """Either of them."""

    @abstractmethod
    def mean(self, payloads: "Sequence[Payload]", d: int) -> "Tensor":
        """What the messages say, added in their order and divided by their number."""


def fits(device: "device", block: int, *, least: int, most: int) -> bool:
    """Whether there is Triton for the device, and the block is one that kernels are written for."""
    return least <= block <= most and block.bit_count() == 1 and _has_triton(device.type)


def launches(d: int, each: int) -> Iterator[tuple[int, int, bool]]:
    """(first program, programs, tail) for programs of `each` numbers: only the last one needs to look where d ends."""
    whole, left = divmod(d, each)
    if whole:
        yield 0, whole, False
    if left:
        yield whole, 1, True


@cache
def _has_triton(kind: str) -> bool:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return (kind == "cuda" or (kind == "cpu" and interpreted)) and find_spec("triton") is not None
