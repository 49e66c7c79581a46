"""Fits what the host needs for each kind of operator (`trace/launches.py`) to host times of whole programs.

    python benchmarks/fit_launches.py count --out docs/benchmarks/trace-host-counts.csv      # traces them, on a CPU
    python benchmarks/fit_launches.py fit                                                    # prints weights and errors

`trace_look.py` has measured the times (`docs/benchmarks/trace-host-h200.csv`). Weights are in operations of the
machine's host; that of a program's own minute and the median of all count the same, as one measurement of it spreads.
Each weight is held towards that of single calls (`trace-machine-h200.csv`), so that kinds which always come together
are told apart.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

BENCHMARKS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
KINDS = ["plain", "cast", "view", "module", "product", "convolution", "attention", "quiet"]
SINGLE = {
    "forward": dict(zip(KINDS, (0.7, 0.7, 0.2, 0.3, 2.0, 3.0, 5.0, 0.1), strict=True)),
    "backward": dict(zip(KINDS, (0.8, 0.8, 0.3, 0.0, 1.5, 3.0, 5.0, 0.1), strict=True)),
}
"""of single calls"""
HELD = 1.0
"""towards them: as if each mean contribution were measured once more"""
HOOKED = ("replicas", "fsdp1", "fsdp2", "titan")
LEFT_OUT = {"forward": HOOKED, "backward": (*HOOKED, "checkpointed")}
"""have hooks of their own, or a forward pass inside the backward"""


def counted(name: str) -> list[dict[str, Any]]:
    import trace_programs
    from shardwise.trace.capture import traced
    from shardwise.trace.launches import kind_of

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        text = trace_programs.SCRIPT.format(folder=str(trace_programs.HERE), name=name)
        script.write_text("import _trace_programs_fourth\n" + text, encoding="utf-8")
        found = traced(script, 1)
    phases: dict[str, Counter[str]] = {}
    for event in found.events:
        if event.calls:
            counts = phases.setdefault(event.phase, Counter())
            counts[kind_of(event)] += 1
            counts["view"] += event.calls - 1 - event.quiet
            counts["quiet"] += event.quiet
            counts["module"] += event.modules
    return [{"name": name, "phase": phase, **counts} for phase, counts in phases.items()]


def table(phase: str) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Names, counts times the machine's operation, and microseconds."""
    with (BENCHMARKS / "trace-host-h200.csv").open(encoding="utf-8", newline="") as file:
        times = {row["name"]: row for row in csv.DictReader(file) if row["whole_ms"]}
    usual = median(float(row["host_us"]) for row in times.values())
    names, counts, spent = [], [], []
    with (BENCHMARKS / "trace-host-counts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["phase"] != phase or row["name"] not in times or row["name"].endswith(LEFT_OUT[phase]):
                continue
            time = times[row["name"]]
            host = (float(time["host_us"]) * usual) ** 0.5
            names.append(row["name"])
            # in a forward pass what is detached comes with the modules, and keeps the time of a single call
            apart = {"quiet"} if phase == "forward" else {"module"}
            counts.append([0.0 if kind in apart else host * float(row[kind] or 0) for kind in KINDS])
            spent.append(1e3 * float(time[f"{phase}_ms"]))
    return names, np.array(counts), np.array(spent)


def fitted(counts: NDArray[np.float64], spent: NDArray[np.float64], single: dict[str, float]) -> NDArray[np.float64]:
    shares = counts / spent[:, None]
    held = HELD * shares.mean(0)
    wanted = np.concatenate([np.ones(len(spent)), held * np.array([single[kind] for kind in KINDS])])
    found: NDArray[np.float64] = nnls(np.vstack([shares, np.diag(held)]), wanted)[0]
    return found


def fit() -> dict[str, Any]:
    said: dict[str, Any] = {}
    for phase, single in SINGLE.items():
        names, counts, spent = table(phase)
        weights = fitted(counts, spent, single)
        errors = {}
        for place, name in enumerate(names):
            others = np.arange(len(names)) != place
            errors[name] = float(counts[place] @ fitted(counts[others], spent[others], single) / spent[place] - 1.0)
        said[phase] = {
            "programs": len(names), "weights": {k: round(float(w), 2) for k, w in zip(KINDS, weights, strict=True)},
            "left_out_mape": mean(map(abs, errors.values())), "errors": errors,
        }  # fmt: skip
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("count", "fit"))
    parser.add_argument("--only", metavar="NAMES", help="count: these, with commas between")
    parser.add_argument("--out", type=Path, help="count: CSV to write")
    asked = parser.parse_args()
    if asked.verb == "fit":
        print(json.dumps(fit(), indent=1))
        return 0
    with (BENCHMARKS / "trace-host-h200.csv").open(encoding="utf-8", newline="") as file:
        names = asked.only.split(",") if asked.only else [row["name"] for row in csv.DictReader(file)]
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["name", "phase", *KINDS, "list"])
        writer.writeheader()
        for name in names:
            writer.writerows(counted(name))
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
