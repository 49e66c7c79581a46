"""What a training loop asks of its data."""

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SAMPLES = 64
"""places of the data that a fingerprint looks at: a corpus may be too large to read before the first step"""


class Source(Protocol):
    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of samples [first, first + count) of an endless stream: [sequence, count, ...] each."""

    def fingerprint(self) -> str:
        """Changes with what is trained on: its length, and samples of it."""


def fingerprint_of(length: int, parts: Iterable[NDArray[Any]]) -> str:
    known = hashlib.sha256(f"{length}".encode())
    for part in parts:
        known.update(np.ascontiguousarray(part).tobytes())
    return f"{length} items, sha256 of samples {known.hexdigest()[:16]}"


def spread(length: int) -> list[int]:
    """Numbers from 0 to below `length`, evenly, the first and the last among them."""
    return sorted({(length - 1) * i // (SAMPLES - 1) for i in range(SAMPLES)})
