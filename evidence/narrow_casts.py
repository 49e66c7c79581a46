"""What scaling and rounding the operands of products in eight bits takes, timed on this GPU.

    python evidence/narrow_casts.py [--out FILE.csv]

For each operand of 16 bits: its largest number and the rounding (`tensor`: one scale, two passes over memory), a scale
for each row (`row`), for 128 numbers of a row (`block`), and the copy the other way round that products on Hopper need
for their backward (`turned`). Eager PyTorch's operations (`eager`) and one compiled kernel where there can be one
(`compiled`). `bytes_per_element`: of the time, at this GPU's speed of a copy; `launches`: kernels.
evidence/timed/narrow-casts-h200.csv: one H200, torch 2.11, random data.
"""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moved_tokens import kernels

SHAPES = [(4096, 4096), (8192, 8192), (16384, 4096), (512, 2048), (16384, 14336)]
COPIED = 2**30
COLUMNS = ["what", "how", "rows", "columns", "seconds", "launches", "bytes_per_element"]
Row = dict[str, Any]


def ways() -> dict[str, Callable[[Any], Any]]:
    import torch

    narrow = torch.float8_e4m3fn
    most = torch.finfo(narrow).max

    def tensor(x: Any) -> Any:
        scale = most / x.abs().amax().float().clamp(min=1e-12)
        return (x.float() * scale).clamp(-most, most).to(narrow), scale

    def row(x: Any) -> Any:
        scale = most / x.abs().amax(1, keepdim=True).float().clamp(min=1e-12)
        return (x.float() * scale).clamp(-most, most).to(narrow), scale

    def block(x: Any) -> Any:
        parts = x.view(x.shape[0], -1, 128)
        scale = most / parts.abs().amax(2, keepdim=True).float().clamp(min=1e-12)
        return (parts.float() * scale).clamp(-most, most).to(narrow).view(x.shape), scale

    def turned(x: Any) -> Any:
        return tensor(x)[0].t().contiguous()

    return {"tensor": tensor, "row": row, "block": block, "turned": turned}


def rows() -> list[Row]:
    import torch

    buffer = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    speed = 2.0 * COPIED / kernels(lambda: buffer.clone())[0]
    found = []
    for shape in SHAPES:
        x = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        for what, run in ways().items():
            for how, called in (("eager", run), ("compiled", torch.compile(run, dynamic=False))):
                seconds, launches = kernels(lambda called=called, x=x: called(x))
                found.append({
                    "what": what, "how": how, "rows": shape[0], "columns": shape[1], "seconds": f"{seconds:.4g}",
                    "launches": launches, "bytes_per_element": f"{seconds * speed / x.numel():.3g}",
                })  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU: these passes are timed on one", file=sys.stderr)
        return 2
    found = rows()
    if given.out:
        with given.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    for row in found:
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
