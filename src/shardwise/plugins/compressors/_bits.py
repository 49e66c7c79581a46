"""Small whole numbers packed into bytes, `bits` each, without gaps."""

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def packed_bytes(count: int, bits: int) -> int:
    return ceil(count * bits / 8)


def pack(codes: "Tensor", bits: int) -> "Tensor":
    """Codes below 2^bits -> uint8."""
    import torch
    from torch.nn.functional import pad

    if bits == 8:
        return codes.to(torch.uint8)
    places = torch.arange(bits, device=codes.device)
    stream = ((codes.to(torch.int32)[:, None] >> places) & 1).to(torch.uint8).view(-1)
    stream = pad(stream, (0, -stream.numel() % 8)).view(-1, 8)
    weights = 2 ** torch.arange(8, device=codes.device, dtype=torch.uint8)
    return (stream * weights).sum(dim=1, dtype=torch.uint8)


def unpack(packed: "Tensor", bits: int, count: int) -> "Tensor":
    """uint8 -> count codes, int32."""
    import torch

    if bits == 8:
        return packed.to(torch.int32)
    stream = (packed.to(torch.int32)[:, None] >> torch.arange(8, device=packed.device)) & 1
    digits = stream.view(-1)[: count * bits].view(count, bits)
    return (digits << torch.arange(bits, device=packed.device)).sum(dim=1, dtype=torch.int32)
