"""Arithmetic in fp32 at least: sums and softmaxes of 16-bit tensors are widened, those in fp64 stay as they are."""

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
