"""What the host spends on entering a compiled block, and on each kernel in it, timed on this GPU.

    python evidence/compiled_calls.py [--out FILE.csv]

Chains of small matrices, each behind a SiLU, as 16 blocks compiled one by one or as one compiled module, so small that
the GPU waits. `weights` are different tensors in a block, `matrices` products in it: a block may use one weight several
times. Host time of a forward and of a backward pass over the blocks, medians of 30 after a warm-up, beside the time of
an operation that `calibrate` measures on this host. A row for each, then what explains them by least squares.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

BLOCKS, WIDTH, ROWS = 16, 64, 64
WARM, REPEATS = 5, 30
CASES = [(1, 1), (2, 2), (4, 4), (8, 8), (4, 1), (8, 1), (8, 4)]
"""matrices, weights"""
COLUMNS = ["how", "blocks", "matrices", "weights", "forward_us", "backward_us", "host_us"]
Row = dict[str, Any]


@cache
def chain_class() -> Any:
    """One class for all blocks, so that one compilation serves them all."""
    import torch
    from torch import nn

    class Chain(nn.Module):
        def __init__(self, matrices: int, weights: int) -> None:
            super().__init__()
            self.matrices, self.number = matrices, weights
            for each in range(weights):
                self.register_parameter(f"w{each}", nn.Parameter(torch.randn(WIDTH, WIDTH) / 8))

        def forward(self, x: Any) -> Any:
            for each in range(self.matrices):
                x = torch.nn.functional.silu(x @ getattr(self, f"w{each % self.number}"))
            return x

    return Chain


def block_of(matrices: int, weights: int) -> Any:
    import torch

    return chain_class()(matrices, weights).to("cuda", torch.bfloat16)


def timed(model: Callable[[Any], Any], parameters: list[Any], probe: Callable[[], float]) -> Row:
    import torch

    passes: list[tuple[float, float, float]] = []
    x = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for _ in range(WARM + REPEATS):
        for parameter in parameters:
            parameter.grad = None
        torch.cuda.synchronize()
        began = time.perf_counter()
        out = model(x)
        between = time.perf_counter()
        loss = out.sum()
        torch.cuda.synchronize()
        again = time.perf_counter()
        loss.backward()
        ended = time.perf_counter()
        torch.cuda.synchronize()
        passes.append((between - began, ended - again, probe()))
    forward, backward, host = (1e6 * median(each) for each in zip(*passes[WARM:], strict=True))
    return {"forward_us": round(forward, 1), "backward_us": round(backward, 1), "host_us": round(host, 2)}


def rows(probe: Callable[[], float]) -> list[Row]:
    import torch
    from torch import nn

    found: list[Row] = []
    for matrices, weights in CASES:
        for how in ("not compiled", "each block", "one module"):
            torch.compiler.reset()
            blocks = nn.Sequential(*(block_of(matrices, weights) for _ in range(BLOCKS)))
            parameters = list(blocks.parameters())
            model: Any = blocks
            if how == "each block":
                model = nn.Sequential(*(torch.compile(block, fullgraph=True) for block in blocks))  # type: ignore[arg-type]
            elif how == "one module":
                model = torch.compile(blocks, fullgraph=True)
            row = {"how": how, "blocks": BLOCKS, "matrices": matrices, "weights": weights}
            found.append(row | timed(model, parameters, probe))
            print(found[-1], flush=True)
    return found


def explained(found: list[Row], how: str, column: str) -> list[float]:
    """Operations of the host: for each entrance, each weight that is handed over, each product with its SiLU."""
    import numpy as np

    mine = [row for row in found if row["how"] == how]
    counts = [
        [1 if how == "one module" else row["blocks"], row["blocks"] * row["weights"], row["blocks"] * row["matrices"]]
        for row in mine
    ]
    spent = np.array([row[column] / row["host_us"] for row in mine])
    return [round(float(each), 2) for each in np.linalg.lstsq(np.array(counts, float), spent, rcond=None)[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parsed = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("no GPU here: the host is timed while it drives one")
    from trace_programs import host_probe

    found = rows(host_probe())
    if parsed.out:
        with parsed.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    for how in ("not compiled", "each block", "one module"):
        for column in ("forward_us", "backward_us"):
            print(how, column, "an entrance, a weight, a product:", explained(found, how, column))


if __name__ == "__main__":
    main()
