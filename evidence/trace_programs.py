"""Predicts training steps of public architectures with `shardwise trace`, measures them on a GPU, compares.

    python evidence/trace_programs.py predict --out evidence/accuracy/h200_programs_predicted.csv      # on a CPU
    python evidence/trace_programs.py measure --out measured.csv                                   # on the GPU
    python evidence/trace_programs.py compare PREDICTED.csv MEASURED.csv [--host-us 14]

The programs are in `_trace_programs.py` and files named after it; `--only NAME,NAME` takes some of
them, `--part 1/2` every second one. Each is built and run in a process of its own. `--kernels FOLDER` writes the device
time of each operator too.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
GIB = 2.0**30
ON = "1xh200"
WARM_UP, FEWEST, MOST, LONG_ENOUGH_S = 3, 5, 30, 2.0
TIME_LIMIT_S = 120
CANNOT_FORK = "initial"
"""in what CUDA says of a child whose parent has used it"""
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from _trace_programs_eleventh import PROGRAMS

PROGRAM = PROGRAMS[{name!r}]

def build():
    return PROGRAM.build()

def batch():
    return PROGRAM.batch()

def step(*given):
    PROGRAM.step(*given)
"""
HOSTS, USUAL_HOST = (16, 20, 24), 20
"""microseconds of an operation, as `shardwise calibrate` measures them; parts are those of the usual one, the default.
Tables of earlier sets have other speeds"""
PREDICTED = ["name", "family", *(f"step_ms_host_{host}us" for host in HOSTS), "peak_gib", "peak_phase", "products_ms",
             "attention_ms", "passes_ms", "optimizer_ms", "host_ms", "why"]  # fmt: skip
HostProbe = Callable[[], tuple[float, float, float]]
FORWARD_SHARE = 0.35
"""of the time of such a step, where both threads' cores are equally fast"""
MEASURED = ["name", "family", "step_ms", "spread", "called_ms", "host_us", "main_us", "autograd_us", "peak_alloc_gib",
            "peak_reserved_gib", "gpu", "torch", "why"]  # fmt: skip


def predicted(name: str) -> dict[str, Any]:
    """Step times at each of `HOSTS`: a table says nothing of the machine's host, which is measured with the steps."""
    from _trace_programs_eleventh import PROGRAMS
    from shardwise.run.trace.capture import traced
    from shardwise.run.trace.price import prices_of
    from shardwise.run.trace.result import result_of
    from shardwise.spec.load import cluster_of
    from shardwise.spec.software import known_stack

    row: dict[str, Any] = {"name": name, "family": PROGRAMS[name].family}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(SCRIPT.format(folder=str(HERE), name=name), encoding="utf-8")
        try:
            captured = traced(script, 1)
        except ValueError as error:
            return row | {"why": str(error)[:200]}
    stack = known_stack("torch-eager@compiled" if captured.compiled else "torch-eager")
    for host in HOSTS:
        prices = prices_of(captured, cluster_of(ON), stack)
        prices = replace(prices, stack=prices.stack.changed(host_s_per_op=host * 1e-6))
        found, _ = result_of(captured, prices)
        assert found.time is not None
        row[f"step_ms_host_{host}us"] = f"{found.time.step_s * 1e3:.2f}"
        if host == USUAL_HOST:
            row |= {f"{part}_ms": f"{found.time.parts[part] * 1e3:.2f}"
                    for part in ("products", "attention", "passes", "optimizer", "host")}  # fmt: skip
            row |= {"peak_gib": f"{found.peak_bytes / GIB:.3f}", "peak_phase": found.peak_phase}
    return row


def measured(name: str, kernels: Path | None) -> dict[str, Any]:
    import torch

    from _trace_programs_eleventh import PROGRAMS

    program = PROGRAMS[name]
    torch.manual_seed(0)
    host = host_probe()
    parts = program.build()
    torch.cuda.empty_cache()
    row, step = timed(program, parts, host, LONG_ENOUGH_S, MOST)
    if kernels is not None:
        _profiled(step, kernels / f"{name}.csv")
    return {"name": name, "family": program.family} | row


def timed(
    program: Any, parts: tuple[Any, ...], host: HostProbe, long_enough_s: float, most: int
) -> tuple[dict[str, Any], Callable[[], float]]:
    """Steps, their memory and the machine's host, which is asked before each step."""
    import torch

    def step() -> float:
        given = program.batch()
        hosts.append(host())
        torch.cuda.synchronize()
        begin = perf_counter()
        program.step(*parts, given)
        called.append(perf_counter() - begin)
        torch.cuda.synchronize()
        return perf_counter() - begin

    called: list[float] = []
    hosts: list[tuple[float, float, float]] = []
    first = [step() for _ in range(WARM_UP)]
    torch.cuda.reset_peak_memory_stats()
    count = min(most, max(FEWEST, int(long_enough_s / first[-1])))
    steps = [step() for _ in range(count)]
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    middle = median(steps)
    both, main, autograd = (f"{median(column):.2f}" for column in zip(*hosts[-count:], strict=True))
    row = {
        "step_ms": f"{middle * 1e3:.2f}",
        "spread": f"{(max(steps) - min(steps)) / middle:.3f}", "called_ms": f"{median(called[-count:]) * 1e3:.2f}",
        "host_us": both, "main_us": main, "autograd_us": autograd, "peak_alloc_gib": f"{peaks[0] / GIB:.3f}",
        "peak_reserved_gib": f"{peaks[1] / GIB:.3f}", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip
    return row, step


def host_probe() -> HostProbe:
    """Microseconds of an operation now, by the measurement of `shardwise calibrate`: of both passes, and of the threads
    that run the forward and the backward pass, in units that agree where the two are equally fast."""
    import torch

    from shardwise.cost.calibrate.measure.launch import host_passes, operations

    passes = host_passes(torch.device("cuda"))
    for _ in range(3):
        passes()

    def asked() -> tuple[float, float, float]:
        forward, backward = (1e6 * seconds / operations() for seconds in passes())
        return forward + backward, forward / FORWARD_SHARE, backward / (1.0 - FORWARD_SHARE)

    return asked


def _profiled(step: Any, to: Path) -> None:
    """Device and host time of one step by operator; the profiler is in the latter."""
    import torch

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    ) as p:
        step()
    with to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["operator", "count", "self_device_us", "self_host_us"])
        for event in sorted(p.key_averages(), key=lambda e: -e.self_device_time_total):
            writer.writerow([event.key[:120], event.count, round(event.self_device_time_total, 1),
                             round(event.self_cpu_time_total, 1)])  # fmt: skip


def each(names: list[str], verb: str, fields: list[str], out: Path, kernels: Path | None, jobs: int) -> None:
    """In processes of their own: one program's memory and failure are not the next one's."""
    from concurrent.futures import ThreadPoolExecutor

    from _trace_programs_eleventh import PROGRAMS

    def one(name: str) -> dict[str, Any]:
        begin = perf_counter()
        row = _forked(name, kernels) if verb == "measure" and not name.endswith("compiled") else {"why": CANNOT_FORK}
        if CANNOT_FORK in row.get("why", ""):
            row = called(name)
        row = {"name": name, "family": PROGRAMS[name].family} | row
        print(f"{name:32} {row.get('step_ms', '-'):>9} ms {row.get('peak_gib', row.get('peak_alloc_gib', '-')):>9} GiB "
              f"{row.get('why', '')} ({perf_counter() - begin:.0f} s)", file=sys.stderr, flush=True)  # fmt: skip
        return row

    def called(name: str) -> dict[str, Any]:
        words = [sys.executable, str(Path(__file__).resolve()), "one-" + verb, name]
        if kernels is not None:
            words += ["--kernels", str(kernels)]
        try:
            run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S * jobs)
            lines = run.stdout.strip().splitlines()
            row = json.loads(lines[-1]) if run.returncode == 0 else {"why": run.stderr.strip().splitlines()[-1][:200]}
        except subprocess.TimeoutExpired:
            row = {"why": f"longer than {TIME_LIMIT_S} s"}
        return row

    with out.open("w", encoding="utf-8", newline="") as file, ThreadPoolExecutor(jobs) as pool:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for row in map(one, names) if jobs == 1 else pool.map(one, names):
            writer.writerow(row)
            file.flush()


def _forked(name: str, kernels: Path | None) -> dict[str, Any]:
    return forked(lambda: measured(name, kernels))


def forked(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it gives, in a child that has its libraries already; or why it failed."""
    import timm  # noqa: F401
    import transformers.modeling_utils  # noqa: F401

    context = get_context("fork")
    here, there = context.Pipe()

    def child() -> None:
        try:
            there.send(call())
        except BaseException as error:
            there.send({"why": f"{type(error).__name__}: {error}"[:200]})

    process = context.Process(target=child)
    process.start()
    there.close()
    row: dict[str, Any] = {"why": f"longer than {TIME_LIMIT_S} s"}
    try:
        if here.poll(TIME_LIMIT_S):
            row = here.recv()
    except EOFError:
        row = {"why": "ended without a word"}
    process.join(5.0)
    process.kill()
    return row


def compared(predictions: Path, measurements: Path, host_us: float | None, halfway: bool) -> dict[str, Any]:
    """`host_us`: of the machine; not given, what was measured beside the steps of each program. `halfway`: at the
    geometric mean of that and the median of all, as the sixth to the tenth set were read."""

    def rows(path: Path) -> dict[str, dict[str, str]]:
        with path.open(encoding="utf-8", newline="") as file:
            return {row["name"]: row for row in csv.DictReader(file)}

    said, seen = rows(predictions), rows(measurements)
    hosts = [float(row["host_us"]) for row in seen.values() if row.get("host_us")]
    usual = host_us if host_us is not None else median(hosts) if hosts else float(USUAL_HOST)
    times, peaks, found = [], [], []
    for name, row in seen.items():
        guess = said.get(name, {})
        if not row["step_ms"] or not guess.get("peak_gib"):
            found.append({"name": name, "why": row.get("why") or guess.get("why") or "not predicted"})
            continue
        own = float(row.get("host_us") or usual) if host_us is None else usual
        step = _at(guess, sqrt(own * usual) if halfway else own)
        time = step / float(row["step_ms"]) - 1.0
        peak = float(guess["peak_gib"]) / float(row["peak_alloc_gib"]) - 1.0
        times.append(abs(time))
        peaks.append(abs(peak))
        found.append({"name": name, "family": row["family"], "step_ms": step, "time_error": time, "memory_error": peak})
        print(f"{name:32} {step:8.1f} ms of {float(row['step_ms']):8.1f} ({time:+6.1%})   "
              f"{float(guess['peak_gib']):6.2f} GiB of {float(row['peak_alloc_gib']):6.2f} ({peak:+6.1%})",
              file=sys.stderr)  # fmt: skip
    return {"host_us": usual, "programs": len(times), "time_mape": mean(times), "time_median_ape": median(times),
            "time_largest": max(times), "memory_mape": mean(peaks), "memory_median_ape": median(peaks),
            "memory_largest": max(peaks), "families": _by_family(found), "each": found}  # fmt: skip


def _by_family(found: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    families: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        if "family" in row:
            families.setdefault(row["family"], []).append(row)
    return {name: {"programs": len(rows), "time_mape": mean(abs(row["time_error"]) for row in rows),
                   "memory_mape": mean(abs(row["memory_error"]) for row in rows)}
            for name, rows in families.items()}  # fmt: skip


def _at(guess: dict[str, str], host: float) -> float:
    """The step at the machine's host, between the two of the table that it lies between."""
    if guess.get("step_ms"):
        return float(guess["step_ms"])
    columns = {int(found[1]): key for key in guess if (found := re.fullmatch(r"step_ms_host_(\d+)us", key))}
    known = [(place, float(guess[columns[place]])) for place in sorted(columns) if guess[columns[place]]]
    low, high = next(((a, b) for a, b in pairwise(known) if host <= b[0]), (known[-2], known[-1]))
    return low[1] + (high[1] - low[1]) * (host - low[0]) / (high[0] - low[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("predict", "measure", "compare", "one-predict", "one-measure"))
    parser.add_argument("given", nargs="*", help="compare: the two tables; one-...: a program")
    parser.add_argument("--only", metavar="NAMES", help="these, with commas between")
    parser.add_argument("--part", metavar="K/N", default="1/1", help="every Nth, from the Kth: a set in several goes")
    parser.add_argument("--out", type=Path, help="CSV to write")
    parser.add_argument("--kernels", type=Path, help="folder for the operators' device time")
    parser.add_argument("--host-us", type=float, help="compare: of an operation; default: what was measured")
    parser.add_argument("--halfway", action="store_true", help="compare: between that and the median of all")
    parser.add_argument("--jobs", type=int, default=1, help="programs predicted at a time")
    asked = parser.parse_args()
    if asked.verb == "compare":
        print(json.dumps(compared(*map(Path, asked.given), asked.host_us, asked.halfway)))
        return 0
    if asked.verb.startswith("one-"):
        name = asked.given[0]
        print(json.dumps(predicted(name) if asked.verb == "one-predict" else measured(name, asked.kernels)))
        return 0
    from _trace_programs_eleventh import ELEVENTH

    part, of = map(int, asked.part.split("/"))
    names = (asked.only.split(",") if asked.only else ELEVENTH)[part - 1 :: of]
    each(names, asked.verb, PREDICTED if asked.verb == "predict" else MEASURED, asked.out, asked.kernels, asked.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
