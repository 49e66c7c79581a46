"""Sizes of the numbers in blocks, found with whole-number operations: the order of adding cannot change a bit.

`|x|` is `bits & SIZE` of an fp32 number; as whole numbers they are ordered like the sizes, infinity and NaN on top.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 0x7FFFFFFF
INFINITE = 0x7F800000
GUARD = 30
"""bits of the fixed point below the highest bit of a block's largest number"""


def size_bits(row: "Tensor") -> "Tensor":
    """int32, of the shape of the row."""
    import torch

    return row.view(torch.int32) & SIZE


def mean_sizes(split: "Tensor", held: "Tensor") -> "Tensor":
    """The sum of |x| over each row of `split`, by `held`; infinite where a number is not finite.

    Each |x| is cut to 30 bits below the power of two of the block's largest, so the sum is a whole number.
    """
    import torch

    sizes = size_bits(split)
    exponent = (sizes.amax(dim=1) >> 23).clamp_min(1)
    unit = torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), 127 + GUARD - exponent)
    total = (sizes.view(torch.float32).double() * unit[:, None]).to(torch.int64).sum(dim=1)
    mean = total.to(torch.float32) / held * 2.0**-GUARD * (exponent << 23).view(torch.float32)
    return torch.where(exponent == 255, torch.full_like(mean, torch.inf), mean)
