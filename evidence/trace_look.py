"""Looks at training steps on the GPU as closely as one process each allows: the step, the host's time by phase of a
batch so small that the GPU waits, and the device time of every operator by the shapes of what it reads.

    python evidence/trace_look.py --out FOLDER [--only NAME,NAME] [--host]                    # on the GPU

Writes `steps.csv` (as `trace_programs.py measure`), `host.csv` and `kernels.csv.gz`. The machine's host is measured
before every step (`host_us`, as `shardwise calibrate` does; `main_us` and `autograd_us`: of the threads that run the
forward and the backward pass), since its speed changes from second to second and from core to core; `python_us`
is a loop that calls no operator, `launch_us` one operator without autograd, `loop_ms` a step of a loop that waits for
nothing. `trace_gaps.py` holds the table of kernels against what the trace says of them.
"""

import argparse
import csv
import gzip
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_map

import trace_programs

LONG_ENOUGH_S, MOST = 1.0, 15
SHORTER_S, FEWER = 0.6, 9
ROWS, TOKENS = 2, 64
WARM_UP, STEPS = 3, 9
PHASES = ("forward", "backward", "optimizer")
HOST = ["name", "host_us", "main_us", "autograd_us", "python_us", "launch_us", *(f"{phase}_ms" for phase in PHASES),
        "whole_ms", "waited_ms", "loop_ms", "why"]  # fmt: skip
KERNELS = ["name", "operator", "shapes", "kernel", "count", "us"]
LOOPS, LAUNCHES, LOOPED = 2000, 200, 8


def cut(leaf: Any) -> Any:
    """To two rows of 64 tokens."""
    if not isinstance(leaf, torch.Tensor) or not leaf.dim():
        return leaf
    few = leaf[:ROWS]
    return few[:, :TOKENS].contiguous() if few.dim() == 2 and not few.is_floating_point() else few.contiguous()


class Nothing:
    def forward(self, x: int, *, given: int = 1) -> int:
        return x + given


def python_us() -> float:
    """Of a call of Python's own."""
    some, x = Nothing(), 0
    begin = perf_counter()
    for _ in range(LOOPS):
        x = some.forward(x, given=2)
    return (perf_counter() - begin) / LOOPS * 1e6


def launch_us(x: torch.Tensor) -> float:
    torch.cuda.synchronize()
    begin = perf_counter()
    for _ in range(LAUNCHES):
        x.add_(1.0)
    return (perf_counter() - begin) / LAUNCHES * 1e6


class PhaseWatch:
    """Seconds of the host in the backward pass and in the optimizer."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        torch.Tensor.backward = self._watched(torch.Tensor.backward, "backward")  # type: ignore[method-assign]
        for part in parts:
            if isinstance(part, torch.optim.Optimizer):
                part.step = self._watched(part.step, "optimizer")  # type: ignore[method-assign]

    def _watched(self, original: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            begin = perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.spent[phase] += perf_counter() - begin

        return called

    def begin(self) -> None:
        self.spent.update(dict.fromkeys(PHASES, 0.0))


def small_steps(
    program: Any, parts: tuple[Any, ...], watch: PhaseWatch, host: trace_programs.HostProbe
) -> dict[str, str]:
    one = torch.ones(8, device="cuda")
    rows = []
    for _ in range(WARM_UP + STEPS):
        given = tree_map(cut, program.batch())
        asked = [*host(), python_us(), launch_us(one)]
        torch.cuda.synchronize()
        watch.begin()
        begin = perf_counter()
        program.step(*parts, given)
        whole = perf_counter() - begin
        torch.cuda.synchronize()
        waited = perf_counter() - begin - whole
        behind = [watch.spent["backward"], watch.spent["optimizer"]]
        rows.append([*asked, *(1e3 * spent for spent in (whole - sum(behind), *behind, whole, waited))])
    found = [median(column) for column in zip(*rows[WARM_UP:], strict=True)]
    return {field: f"{value:.3f}" for field, value in zip(HOST[1:-2], found, strict=True)}


def loop_ms(program: Any, parts: tuple[Any, ...]) -> float:
    """Of a step in a loop that waits for nothing, so that the host runs ahead of the GPU."""
    batches = [program.batch() for _ in range(LOOPED)]
    torch.cuda.synchronize()
    begin = perf_counter()
    for given in batches:
        program.step(*parts, given)
    torch.cuda.synchronize()
    return (perf_counter() - begin) / LOOPED * 1e3


def kernels_of(step: Callable[[], Any]) -> list[dict[str, Any]]:
    """Of one step, by operator, shapes and kernel."""
    both = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=both, record_shapes=True) as p:
        step()
    counts: Counter[tuple[str, str, str]] = Counter()
    spent: Counter[tuple[str, str, str]] = Counter()
    for event in p.events():
        shapes = "".join(str(list(shape)).replace(" ", "") for shape in event.input_shapes or ())
        for kernel in event.kernels:
            key = (event.name[:60], shapes[:200], kernel.name[:70])
            counts[key] += 1
            spent[key] += kernel.duration
    return [{"operator": o, "shapes": s, "kernel": k, "count": counts[o, s, k], "us": round(spent[o, s, k], 1)}
            for o, s, k in sorted(counts, key=lambda key: -spent[key])]  # fmt: skip


def looked_at(name: str, host_alone: bool) -> dict[str, Any]:
    from _trace_programs_eleventh import PROGRAMS

    program = PROGRAMS[name]
    torch.manual_seed(0)
    host = trace_programs.host_probe()
    parts = program.build()
    torch.cuda.empty_cache()
    long_enough_s, most = (SHORTER_S, FEWER) if host_alone else (LONG_ENOUGH_S, MOST)
    row, step = trace_programs.timed(program, parts, host, long_enough_s, most)
    found: dict[str, Any] = {"step": {"name": name, "family": program.family} | row, "host": {"name": name}}
    if not host_alone:
        found["host"]["loop_ms"] = f"{loop_ms(program, parts):.3f}"
    try:
        found["host"] |= small_steps(program, parts, PhaseWatch(parts), host)
    except Exception as error:
        found["host"]["why"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    found["kernels"] = [] if host_alone else [{"name": name} | kernel for kernel in kernels_of(step)]
    return found


def main() -> int:
    from _trace_programs_eleventh import NINTH

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="these, with commas between")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--host", action="store_true", help="no kernels, fewer steps")
    parser.add_argument("--limit-s", type=float, default=540.0, help="no further program is begun after so long")
    asked = parser.parse_args()
    began = perf_counter()
    asked.out.mkdir(exist_ok=True)
    with (
        (asked.out / "steps.csv").open("w", encoding="utf-8", newline="") as steps,
        (asked.out / "host.csv").open("w", encoding="utf-8", newline="") as hosts,
        gzip.open(asked.out / "kernels.csv.gz", "wt", encoding="utf-8", newline="") as kernels,
    ):
        tables = [csv.DictWriter(steps, trace_programs.MEASURED), csv.DictWriter(hosts, HOST)]
        table = csv.DictWriter(kernels, KERNELS)
        for writer in (*tables, table):
            writer.writeheader()
        for name in asked.only.split(",") if asked.only else NINTH:
            if perf_counter() - began > asked.limit_s:
                print("no time for", name, file=sys.stderr)
                continue
            begin = perf_counter()
            row = trace_programs.forked(lambda name=name: looked_at(name, asked.host))
            why = row.get("why", "")
            tables[0].writerow(row.get("step", {"name": name, "why": why}))
            tables[1].writerow(row.get("host", {"name": name, "why": why}))
            table.writerows(row.get("kernels", ()))
            for file in (steps, hosts):
                file.flush()
            said = row.get("step", {})
            print(f"{name:32} {said.get('step_ms', '-'):>9} ms host {said.get('host_us', '-')} us {why} "
                  f"{row.get('host', {}).get('why', '')} ({perf_counter() - begin:.1f} s)",
                  file=sys.stderr, flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
