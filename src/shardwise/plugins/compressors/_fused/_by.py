"""A sum divided by its number of terms, rounded as torch rounds a division."""

import triton
import triton.language as tl


@triton.jit
def by(total: tl.tensor, N: tl.constexpr) -> tl.tensor:
    if (N & (N - 1)) == 0:  # noqa: SIM108 - a branch for the compiler: the inverse of a power of two is exact
        mean = total * (1.0 / N)
    else:
        mean = tl.div_rn(total, tl.zeros_like(total) + N)
    return mean
