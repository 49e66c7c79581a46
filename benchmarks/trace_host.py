"""What the host needs to launch a training step, measured on programs whose batch is so small that the GPU waits.

    python benchmarks/trace_host.py --out host.csv [--only NAME,NAME]                        # on the GPU

The programs are those of `_trace_programs.py` and files named after it, cut to two rows of 64 tokens, one after the
other in one process; `host_us` is what `shardwise calibrate` measures of the machine's host, just before each.
"""

import argparse
import csv
import gc
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

ROWS, TOKENS = 2, 64
WARM_UP, STEPS = 3, 9
PHASES = ("forward", "backward", "optimizer")
MEASURED = ["name", "host_us", *(f"{phase}_ms" for phase in PHASES), "whole_ms", "waited_ms", "fastest_ms", "why"]


def cut(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or not leaf.dim():
        return leaf
    few = leaf[:ROWS]
    return few[:, :TOKENS].contiguous() if few.dim() == 2 and not few.is_floating_point() else few.contiguous()


def measured(program: Any) -> dict[str, Any]:
    from trace_programs import _host

    host_us = _host() * 1e6
    parts = program.build()
    spent = dict.fromkeys(PHASES, 0.0)
    backward = torch.Tensor.backward

    def watched(original: Any, phase: str) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent[phase] += perf_counter() - begin

        return called

    torch.Tensor.backward = watched(backward, "backward")  # type: ignore[method-assign]
    for part in parts:
        if isinstance(part, torch.optim.Optimizer):
            part.step = watched(part.step, "optimizer")  # type: ignore[method-assign]
    rows = []
    try:
        for _ in range(WARM_UP + STEPS):
            given = tree_map(cut, program.batch())
            torch.cuda.synchronize()
            spent.update(dict.fromkeys(PHASES, 0.0))
            begin = perf_counter()
            program.step(*parts, given)
            host = perf_counter() - begin
            torch.cuda.synchronize()
            rows.append([host - spent["backward"] - spent["optimizer"], spent["backward"], spent["optimizer"], host,
                         perf_counter() - begin - host])  # fmt: skip
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]
    kept = rows[WARM_UP:]
    found = [*(median(column) for column in zip(*kept, strict=True)), min(row[3] for row in kept)]
    times = {field: f"{value * 1e3:.3f}" for field, value in zip(MEASURED[2:-1], found, strict=True)}
    return {"host_us": f"{host_us:.2f}", **times}


def main() -> int:
    import _trace_programs_fourth  # noqa: F401
    from _trace_programs_sixth import PROGRAMS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="these, with commas between")
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(PROGRAMS)
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, MEASURED)
        writer.writeheader()
        for name in names:
            try:
                row = measured(PROGRAMS[name])
            except Exception as error:
                row = {"why": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            gc.collect()
            torch.cuda.empty_cache()
            print(name, row, file=sys.stderr, flush=True)
            writer.writerow({"name": name} | row)
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
