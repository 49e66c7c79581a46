"""The optimizer step: fused AdamW over fp32 weights, gradients and two moments."""

import torch

from shardwise.cost.calibrate.measure._bench import Bench, Point
from shardwise.plugins.optimizers.adamw import OPTIMIZER as ADAMW
from shardwise.spec.job import PRECISIONS

BYTES_PER_PARAMETER = ADAMW.moved_bytes(PRECISIONS["fp32"])
"""weight, gradient and two moments are read, all but the gradient written, 4 bytes each"""
SIZES = {"cuda": (2**26, 2**28), "cpu": (2**19, 2**21)}


def optimizer_points(bench: Bench) -> list[Point]:
    return [_point(bench, size) for size in SIZES[bench.device.type]]


def _point(bench: Bench, size: int) -> Point:
    pieces = [torch.nn.Parameter(bench.random(size // 16, dtype=torch.float32)) for _ in range(16)]
    for piece in pieces:
        piece.grad = torch.randn_like(piece)
    adam = torch.optim.AdamW(pieces, lr=1e-6, fused=True)
    return {
        "op": "adamw", "elements": size, "bytes": BYTES_PER_PARAMETER * size, "seconds": bench.seconds([adam.step]),
    }  # fmt: skip
