"""What a collective costs the host, timed on this GPU: the call, and the autograd function Megatron puts around it.

    python evidence/collective_calls.py [--out FILE.csv]

NCCL's kernels of one rank move a few bytes, so what passes is Python, PyTorch's process group, its events and the
launch. `plain`: the call alone; `mapped`: an autograd function that makes the output and calls it, both passes, as a
column- or row-parallel product does. Medians in microseconds; an addition stands beside them, of the same process.
evidence/timed/collective-calls-h200.csv: one H200, torch 2.11.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

CALLS, REPEATS, WIDTH = 200, 15, 1024
COLUMNS = ["call", "forward_us", "both_us"]
Row = dict[str, Any]


def passed(run: Callable[[], Any]) -> float:
    """Microseconds of one call, the GPU left behind."""
    import torch

    found = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return median(found)


def calls() -> dict[str, Callable[[Any], Any]]:
    import torch
    from torch import distributed

    def all_reduce(x: Any) -> Any:
        distributed.all_reduce(x)
        return x

    def all_gather(x: Any) -> Any:
        whole = torch.empty_like(x)
        distributed.all_gather_into_tensor(whole, x)
        return whole

    def reduce_scatter(x: Any) -> Any:
        part = torch.empty_like(x)
        distributed.reduce_scatter_tensor(part, x)
        return part

    def all_to_all(x: Any) -> Any:
        got = torch.empty_like(x)
        distributed.all_to_all_single(got, x, [len(x)], [len(x)])
        return got

    return {"all_reduce": all_reduce, "all_gather": all_gather, "reduce_scatter": reduce_scatter,
            "all_to_all": all_to_all}  # fmt: skip


def mapped(forward: Callable[[Any], Any], backward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import torch

    class Mapping(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return forward(x)

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            return backward(gradient.contiguous())

    return Mapping.apply  # type: ignore[no-any-return]


def rows() -> list[Row]:
    import torch

    known, found = calls(), []
    x = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    asked = x.clone().requires_grad_()
    one = torch.ones(8, device="cuda", dtype=torch.int64)
    ways: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "launch": (lambda: torch.add(x, x), None),
        "count read": (lambda: one.sum().item(), None),
    }
    for name, call in known.items():
        ways[f"plain {name}"] = (lambda call=call: call(x)), None
    pairs = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_to_all": "all_to_all"}
    for name, back in pairs.items():
        run = mapped(known[name], known[back])
        ways[f"mapped {name}"] = (lambda run=run: run(x)), (lambda run=run: run(asked).backward(x))
    for name, (ahead, both) in ways.items():
        took = round(passed(both), 1) if both else ""
        found.append({"call": name, "forward_us": round(passed(ahead), 1), "both_us": took})
    plus = passed(lambda: torch.add(asked, 1.0).backward(x))
    return [*found, {"call": "autograd of an addition", "forward_us": "", "both_us": round(plus, 1)}]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import torch
    from torch import distributed

    if not torch.cuda.is_available():
        print("no GPU: these calls are timed on one", file=sys.stderr)
        return 2
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    distributed.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda", 0))
    found = rows()
    distributed.destroy_process_group()
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
