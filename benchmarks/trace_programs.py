"""Predicts training steps of public architectures with `shardwise trace`, measures them on a GPU, compares.

    python benchmarks/trace_programs.py predict --out docs/accuracy/h200_programs_predicted.csv      # on a CPU
    python benchmarks/trace_programs.py measure --out measured.csv                                   # on the GPU
    python benchmarks/trace_programs.py compare PREDICTED.csv MEASURED.csv

The programs are in `_trace_programs.py` and files named after it; `--only NAME,NAME` takes some of
them. Each is built and run in a process of its own. `--kernels FOLDER` writes the device time of each operator too.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
GIB = 2.0**30
ON = "1xh200"
COMMAND = "import sys; from shardwise.cli import main; sys.exit(main())"
WARM_UP, FEWEST, MOST, LONG_ENOUGH_S = 3, 5, 30, 3.0
TIME_LIMIT_S = 120
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from _trace_programs_fourth import PROGRAMS

PROGRAM = PROGRAMS[{name!r}]

def build():
    return PROGRAM.build()

def batch():
    return PROGRAM.batch()

def step(*given):
    PROGRAM.step(*given)
"""
PREDICTED = ["name", "family", "step_ms", "peak_gib", "peak_phase", "products_ms", "attention_ms", "passes_ms",
             "optimizer_ms", "host_ms", "why"]  # fmt: skip
MEASURED = ["name", "family", "step_ms", "spread", "peak_alloc_gib", "peak_reserved_gib", "gpu", "torch", "why"]


def predicted(name: str) -> dict[str, Any]:
    from _trace_programs_fourth import PROGRAMS

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(SCRIPT.format(folder=str(HERE), name=name), encoding="utf-8")
        words = [
            sys.executable,
            "-c",
            "import sys; from shardwise.cli import main; sys.exit(main())",
            "trace",
            str(script),
            "--on",
            ON,
            "--json",
        ]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
    row = {"name": name, "family": PROGRAMS[name].family}
    if run.returncode == 2:
        return row | {"why": run.stderr.strip().splitlines()[-1]}
    found = json.loads(run.stdout)
    parts = {f"{part}_ms": f"{found['time']['parts'][part] * 1e3:.2f}"
             for part in ("products", "attention", "passes", "optimizer", "host")}  # fmt: skip
    return row | parts | {
        "step_ms": f"{found['time']['step_s'] * 1e3:.2f}", "peak_gib": f"{found['peak_bytes'] / GIB:.3f}",
        "peak_phase": found["peak_phase"],
    }  # fmt: skip


def measured(name: str, kernels: Path | None) -> dict[str, Any]:
    import torch

    from _trace_programs_fourth import PROGRAMS

    program = PROGRAMS[name]
    torch.manual_seed(0)
    parts = program.build()
    torch.cuda.empty_cache()

    def step() -> float:
        given = program.batch()
        torch.cuda.synchronize()
        begin = perf_counter()
        program.step(*parts, given)
        torch.cuda.synchronize()
        return perf_counter() - begin

    first = [step() for _ in range(WARM_UP)]
    torch.cuda.reset_peak_memory_stats()
    count = min(MOST, max(FEWEST, int(LONG_ENOUGH_S / first[-1])))
    steps = [step() for _ in range(count)]
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    if kernels is not None:
        _profiled(step, kernels / f"{name}.csv")
    middle = median(steps)
    return {
        "name": name, "family": program.family, "step_ms": f"{middle * 1e3:.2f}",
        "spread": f"{(max(steps) - min(steps)) / middle:.3f}", "peak_alloc_gib": f"{peaks[0] / GIB:.3f}",
        "peak_reserved_gib": f"{peaks[1] / GIB:.3f}", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip


def _profiled(step: Any, to: Path) -> None:
    """Device time of one step by operator."""
    import torch

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    ) as p:
        step()
    with to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["operator", "count", "self_device_us"])
        for event in sorted(p.key_averages(), key=lambda e: -e.self_device_time_total):
            if event.self_device_time_total:
                writer.writerow([event.key[:120], event.count, round(event.self_device_time_total, 1)])


def each(names: list[str], verb: str, fields: list[str], out: Path, kernels: Path | None, jobs: int) -> None:
    """In processes of their own: one program's memory and failure are not the next one's."""
    from concurrent.futures import ThreadPoolExecutor

    from _trace_programs_fourth import PROGRAMS

    def one(name: str) -> dict[str, Any]:
        begin = perf_counter()
        words = [sys.executable, str(Path(__file__).resolve()), "one-" + verb, name]
        if kernels is not None:
            words += ["--kernels", str(kernels)]
        try:
            run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S * jobs)
            lines = run.stdout.strip().splitlines()
            row = json.loads(lines[-1]) if run.returncode == 0 else {"why": run.stderr.strip().splitlines()[-1][:200]}
        except subprocess.TimeoutExpired:
            row = {"why": f"longer than {TIME_LIMIT_S} s"}
        row = {"name": name, "family": PROGRAMS[name].family} | row
        print(f"{name:32} {row.get('step_ms', '-'):>9} ms {row.get('peak_gib', row.get('peak_alloc_gib', '-')):>9} GiB "
              f"{row.get('why', '')} ({perf_counter() - begin:.0f} s)", file=sys.stderr, flush=True)  # fmt: skip
        return row

    with out.open("w", encoding="utf-8", newline="") as file, ThreadPoolExecutor(jobs) as pool:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for row in pool.map(one, names):
            writer.writerow(row)
            file.flush()


def compared(predictions: Path, measurements: Path) -> dict[str, Any]:
    def rows(path: Path) -> dict[str, dict[str, str]]:
        with path.open(encoding="utf-8", newline="") as file:
            return {row["name"]: row for row in csv.DictReader(file)}

    said, seen = rows(predictions), rows(measurements)
    times, peaks, found = [], [], []
    for name, row in seen.items():
        guess = said.get(name, {})
        if not row["step_ms"] or not guess.get("step_ms"):
            found.append({"name": name, "why": row.get("why") or guess.get("why") or "not predicted"})
            continue
        time = float(guess["step_ms"]) / float(row["step_ms"]) - 1.0
        peak = float(guess["peak_gib"]) / float(row["peak_alloc_gib"]) - 1.0
        times.append(abs(time))
        peaks.append(abs(peak))
        found.append({"name": name, "family": row["family"], "time_error": time, "memory_error": peak})
        print(f"{name:32} {float(guess['step_ms']):8.1f} ms of {float(row['step_ms']):8.1f} ({time:+6.1%})   "
              f"{float(guess['peak_gib']):6.2f} GiB of {float(row['peak_alloc_gib']):6.2f} ({peak:+6.1%})",
              file=sys.stderr)  # fmt: skip
    return {"programs": len(times), "time_mape": mean(times), "time_median_ape": median(times),
            "time_largest": max(times), "memory_mape": mean(peaks), "memory_median_ape": median(peaks),
            "memory_largest": max(peaks), "each": found}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("predict", "measure", "compare", "one-predict", "one-measure"))
    parser.add_argument("given", nargs="*", help="compare: the two tables; one-...: a program")
    parser.add_argument("--only", metavar="NAMES", help="these, with commas between")
    parser.add_argument("--out", type=Path, help="CSV to write")
    parser.add_argument("--kernels", type=Path, help="folder for the operators' device time")
    parser.add_argument("--jobs", type=int, default=1, help="programs predicted at a time")
    asked = parser.parse_args()
    if asked.verb == "compare":
        print(json.dumps(compared(*map(Path, asked.given))))
        return 0
    if asked.verb.startswith("one-"):
        name = asked.given[0]
        print(json.dumps(predicted(name) if asked.verb == "one-predict" else measured(name, asked.kernels)))
        return 0
    from _trace_programs_fourth import PROGRAMS

    names = asked.only.split(",") if asked.only else list(PROGRAMS)
    each(names, asked.verb, PREDICTED if asked.verb == "predict" else MEASURED, asked.out, asked.kernels, asked.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
