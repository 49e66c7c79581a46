"""Element-wise passes: what share of the memory's bandwidth a copy, a norm and an activation reach."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from shardwise.cost.calibrate.measure._bench import Bench, Call, Point

WIDTH = 4096
ELEMENTS = {"cuda": (2**26, 2**28), "cpu": (2**20, 2**22)}
KINDS = {"copy": "stream", "add": "stream", "rms_norm": "norm", "gelu": "activation"}


def memory_points(bench: Bench) -> Iterator[Point]:
    """Two sizes of each; the slope between them is free of the launch."""
    for op in KINDS:
        for elements in ELEMENTS[bench.device.type]:
            kind = torch.bfloat16 if bench.cuda else torch.float32
            calls = _calls(bench, op, elements, kind)
            moved = (3 if op == "add" else 2) * elements * kind.itemsize
            yield {"op": op, "elements": elements, "bytes": moved, "seconds": bench.seconds(calls)}


def _calls(bench: Bench, op: str, elements: int, kind: torch.dtype) -> list[Call]:
    def one() -> Call:
        x = bench.random(elements // WIDTH, WIDTH, dtype=kind)
        if op == "copy":
            out = torch.empty_like(x)
            return lambda: out.copy_(x)
        if op == "add":
            y, total = torch.randn_like(x), torch.empty_like(x)
            return lambda: torch.add(x, y, out=total)
        if op == "gelu":
            return lambda: F.gelu(x)
        weight = torch.ones(WIDTH, device=bench.device, dtype=kind)
        return lambda: F.rms_norm(x, (WIDTH,), weight)

    return [one() for _ in range(min(bench.copies(2.0 * elements * kind.itemsize), 4))]
