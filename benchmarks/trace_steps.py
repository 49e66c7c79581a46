"""Traces the very programs whose steps were measured on one H200 and holds step time and peak memory against them.

    python benchmarks/trace_steps.py --json

`measure_steps.py` measured them (evidence/accuracy/h200_fresh_measured.csv); `shardwise trace` sees the same code on a
CPU, without a GPU. `--only NAME` takes one of them. Printed are, for what is compiled and what is not, rows traced and
mean, median and largest errors.
"""

import argparse
import csv
import json
import sys
import tempfile
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
MEASURED = HERE.parent / "evidence" / "accuracy" / "h200_fresh_measured.csv"
GIB = 2.0**30
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from _step_configs import config_of
from measure_steps import Training

def build():
    return Training(config_of({cells!r}), "cpu")

def step(training):
    training.step()
"""


def traced(row: dict[str, str], folder: Path) -> dict[str, Any]:
    from shardwise.run.trace.capture import traced as captured_of
    from shardwise.run.trace.price import prices_of
    from shardwise.run.trace.result import result_of
    from shardwise.spec.load import cluster_of
    from shardwise.spec.software import known_stack

    script = folder / f"{row['name']}.py"
    script.write_text(SCRIPT.format(folder=str(HERE), cells=row), encoding="utf-8")
    begin = perf_counter()
    captured = captured_of(script, 1)
    stack = known_stack("torch-eager@compiled" if captured.compiled else "torch-eager")
    found, _ = result_of(captured, prices_of(captured, cluster_of("1xh200"), stack))
    assert found.time is not None
    step_ms, peak = float(row["step_ms"]), float(row["peak_alloc_gib"])
    return {
        "name": row["name"], "compiled": captured.compiled, "step_ms": found.time.step_s * 1e3,
        "measured_step_ms": step_ms, "time_error": found.time.step_s * 1e3 / step_ms - 1.0,
        "peak_gib": found.peak_bytes / GIB, "measured_peak_gib": peak,
        "memory_error": found.peak_bytes / GIB / peak - 1.0, "took_s": perf_counter() - begin,
    }  # fmt: skip


def errors_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    times, peaks = ([abs(row[name]) for row in rows] for name in ("time_error", "memory_error"))
    return {
        "rows": len(rows), "time_mape": mean(times), "time_median_ape": median(times), "time_largest": max(times),
        "memory_mape": mean(peaks), "memory_largest": max(peaks),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="trace this one alone")
    parser.add_argument("--data", type=Path, default=MEASURED, help="table of measured steps")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    asked = parser.parse_args()
    with asked.data.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["step_ms"] and asked.only in (None, row["name"])]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            found.append(traced(row, Path(folder)))
            last = found[-1]
            print(f"{last['name']:32} {last['step_ms']:8.1f} ms of {last['measured_step_ms']:8.1f} "
                  f"({last['time_error']:+6.1%})   {last['peak_gib']:6.2f} GiB of {last['measured_peak_gib']:6.2f} "
                  f"({last['memory_error']:+6.1%})", file=sys.stderr)  # fmt: skip
    kinds = {"uncompiled": [r for r in found if not r["compiled"]], "compiled": [r for r in found if r["compiled"]]}
    document = {kind: errors_of(part) for kind, part in kinds.items() if part} | {"each": found}
    print(json.dumps(document if asked.json else {k: v for k, v in document.items() if k != "each"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
