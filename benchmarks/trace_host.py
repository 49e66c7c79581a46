"""What the host needs to launch a training step, measured on programs whose batch is so small that the GPU waits.

    python benchmarks/trace_host.py measure --out host.csv                         # on the GPU

The programs are those of `_trace_programs.py`, cut to two rows of 64 tokens; `--only NAME,NAME` takes some of them.
"""

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

HERE = Path(__file__).resolve().parent
ROWS, TOKENS = 2, 64
WARM_UP, STEPS = 3, 7
PHASES = ("forward", "backward", "optimizer")
MEASURED = ["name", *(f"{phase}_ms" for phase in PHASES), "whole_ms", "waited_ms", "why"]


def cut(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or not leaf.dim():
        return leaf
    few = leaf[:ROWS]
    return few[:, :TOKENS].contiguous() if few.dim() == 2 and not few.is_floating_point() else few.contiguous()


def measured(name: str) -> dict[str, Any]:
    from _trace_programs_fourth import PROGRAMS

    program = PROGRAMS[name]
    parts = program.build()
    spent = dict.fromkeys(PHASES, 0.0)

    def watched(owner: Any, method: str, phase: str) -> None:
        original = getattr(owner, method)

        def called(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent[phase] += perf_counter() - begin

        setattr(owner, method, called)

    watched(torch.Tensor, "backward", "backward")
    for part in parts:
        if isinstance(part, torch.optim.Optimizer):
            watched(part, "step", "optimizer")
    rows = []
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
    found = [median(column) for column in zip(*rows[WARM_UP:], strict=True)]
    return {"name": name, **{field: f"{value * 1e3:.3f}" for field, value in zip(MEASURED[1:-1], found, strict=True)}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("measure", "one-measure"))
    parser.add_argument("given", nargs="*", help="one-...: a program")
    parser.add_argument("--only", metavar="NAMES", help="these, with commas between")
    parser.add_argument("--out", type=Path, help="CSV to write")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    asked = parser.parse_args()
    if asked.verb == "one-measure":
        print(json.dumps(measured(asked.given[0])))
        return 0
    from _trace_programs_fourth import PROGRAMS

    def one(name: str) -> dict[str, Any]:
        words = [sys.executable, str(Path(__file__).resolve()), "one-measure", name]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = run.stdout.strip().splitlines()
        row = json.loads(lines[-1]) if run.returncode == 0 else {"why": run.stderr.strip().splitlines()[-1][:200]}
        print(name, row, file=sys.stderr, flush=True)
        return {"name": name} | row

    names = asked.only.split(",") if asked.only else list(PROGRAMS)
    with asked.out.open("w", encoding="utf-8", newline="") as file, ThreadPoolExecutor(asked.jobs) as pool:
        writer = csv.DictWriter(file, MEASURED)
        writer.writeheader()
        for row in pool.map(one, names):
            writer.writerow(row)
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
