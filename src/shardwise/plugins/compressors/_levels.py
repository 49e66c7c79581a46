"""Random rounding to evenly spaced levels of a scale per block, shared by the quantizers.

A number between two levels goes up with the probability of its place between them, so its mean is right.
"""

from typing import TYPE_CHECKING

from shardwise.plugins.compressors._bits import pack, packed_bytes, unpack
from shardwise.plugins.compressors._contract import Payload, blocks, in_blocks
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


def code_bits(steps: int) -> int:
    """Bits that tell the 2 steps + 1 signed levels apart."""
    return (2 * steps).bit_length()


def level_bytes(d: int, block: int, steps: int) -> int:
    return packed_bytes(d, code_bits(steps)) + 4 * blocks(d, block)[0]


def encode_levels(row: "Tensor", block: int, steps: int, scale_of: str, draw: Draw) -> Payload:
    """scale_of: 'largest' (of the absolute values) or 'norm' of a block."""
    import torch

    d = row.numel()
    split = in_blocks(row, *blocks(d, block))
    scale = split.abs().amax(dim=1) if scale_of == "largest" else (split * split).sum(dim=1).sqrt()
    unit = torch.where(scale > 0, steps / scale.clamp_min(torch.finfo(torch.float32).tiny), torch.zeros_like(scale))
    place = ((split.abs() * unit[:, None]).reshape(-1)[:d]).clamp_max(float(steps))
    floor = place.floor()
    level = floor + (draw.uniform(d, row.device) < place - floor).to(torch.float32)
    signed = torch.where(row < 0, -level, level).to(torch.int32) + steps
    return pack(signed, code_bits(steps)), scale


def decode_levels(payload: Payload, d: int, block: int, steps: int) -> "Tensor":
    import torch

    codes, scale = payload
    level = (unpack(codes, code_bits(steps), d) - steps).to(torch.float32)
    split = in_blocks(level, *blocks(d, block))
    return (split * (scale / steps)[:, None]).reshape(-1)[:d]
