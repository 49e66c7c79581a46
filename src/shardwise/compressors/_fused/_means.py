"""What the kernels that take the mean of messages share."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor


def addresses(parts: Sequence[Tensor]) -> Tensor:
    """Where the same part of every message lies, so that messages need not be copied side by side."""
    return torch.tensor([part.data_ptr() for part in parts], dtype=torch.int64).to(parts[0].device)


@triton.jit
def addressed(table: tl.tensor, n: tl.tensor, kind: tl.constexpr) -> tl.tensor:
    return tl.load(table + n).to(tl.pointer_type(kind))


@triton.jit
def by(total: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """A sum by its number of terms, rounded as torch rounds a division; the inverse of a power of two is exact."""
    return total * (1.0 / N) if (N & (N - 1)) == 0 else tl.div_rn(total, tl.zeros_like(total) + N)


@triton.jit
def in_turn(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tensor:
    """One number of each, in turn."""
    joined = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.reshape(joined, (a.shape[0] * 4,))
