"""Random numbers by counting: a hash of (seed, step, worker, purpose, place), 32-bit integer operations only.

The same bits on any device, in any order and any batching, so that a simulation and a run draw alike and a receiver
can repeat what the sender drew.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device

_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Draw:
    seed: int = 0
    step: int = 0
    worker: int = 0
    purpose: int = 0

    def shared(self) -> "Draw":
        """The same for all workers."""
        return replace(self, worker=_MASK)

    def bits(self, count: int, device: "device | str" = "cpu") -> "Tensor":
        """count whole numbers below 2^32, as int64."""
        import torch

        key = 0
        for word in (self.seed, self.step, self.worker, self.purpose):
            key = _hashed((key ^ (word & _MASK)) * 0x9E3779B9 + 0x7F4A7C15)
        place = torch.arange(count, dtype=torch.int64, device=device)
        mixed = (place * 0x9E3779B9 + key) & _MASK
        mixed = ((mixed ^ (mixed >> 16)) * 0x7FEB352D) & _MASK
        mixed = ((mixed ^ (mixed >> 15)) * 0x846CA68B) & _MASK
        return mixed ^ (mixed >> 16)

    def uniform(self, count: int, device: "device | str" = "cpu") -> "Tensor":
        """fp32 in [0, 1), multiples of 2^-24."""
        import torch

        return (self.bits(count, device) >> 8).to(torch.float32) * 2.0**-24

    def signs(self, count: int, device: "device | str" = "cpu") -> "Tensor":
        """fp32, +1 or -1."""
        import torch

        return (self.bits(count, device) >> 31).to(torch.float32) * 2.0 - 1.0


def _hashed(word: int) -> int:
    word &= _MASK
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & _MASK
    word = ((word ^ (word >> 15)) * 0x846CA68B) & _MASK
    return word ^ (word >> 16)
