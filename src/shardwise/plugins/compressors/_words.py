"""Small whole numbers packed into 32-bit words, `bits` each, the first one lowest; zeros behind the end."""

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device

WORD = 32


def word_bytes(count: int, bits: int) -> int:
    return 4 * ceil(count * bits / WORD)


def pack_words(codes: "Tensor", bits: int) -> "Tensor":
    """int32 codes below 2^bits, where bits divides 32 -> int32 words."""
    import torch
    from torch.nn.functional import pad

    each = WORD // bits
    split = pad(codes, (0, -codes.numel() % each)).view(-1, each)
    return (split << _places(bits, codes.device)).sum(dim=1, dtype=torch.int32)


def unpack_words(words: "Tensor", bits: int, count: int) -> "Tensor":
    """int32 words -> count codes, int32."""
    codes: Tensor = (words[:, None] >> _places(bits, words.device)) & (2**bits - 1)
    return codes.view(-1)[:count]


def _places(bits: int, device: "device") -> "Tensor":
    import torch

    return torch.arange(0, WORD, bits, dtype=torch.int32, device=device)
