"""What a training loop asks of its data."""

from typing import Protocol

from torch import Tensor


class Source(Protocol):
    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of samples [first, first + count) of an endless stream: [sequence, count, ...] each."""
