"""Checksums of tensors: one flipped bit always changes them."""

from collections.abc import Iterable

import torch
from torch import Tensor

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(tensor: Tensor) -> int:
    """The sum of its words as whole numbers, modulo 2^64; two flips of one bit up and down in it may cancel."""
    return int(tensor.detach().reshape(-1).view(_WORDS[tensor.element_size()]).sum(dtype=torch.int64))


def checksums(tensors: Iterable[Tensor]) -> list[int]:
    return [checksum(tensor) for tensor in tensors]
