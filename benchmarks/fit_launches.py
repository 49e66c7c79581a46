"""Fits what the host needs for each kind of operator (`trace/launches.py`) to host times of whole programs.

    python benchmarks/fit_launches.py count --out docs/benchmarks/trace-host-counts.csv      # traces them, on a CPU
    python benchmarks/fit_launches.py fit                                                    # prints weights and errors

`trace_look.py` has measured the times (`docs/benchmarks/trace-host-h200.csv`). Weights are in operations of the
machine's host, measured before each step. Each weight is held towards that of single calls (`trace-machine-h200.csv`),
so that kinds which always come together are told apart.
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
KINDS = ["plain", "cast", "view", "product", "convolution", "attention", "quiet", "list", "functions", "builtins"]
SINGLE = {
    "forward": dict(zip(KINDS, (0.9, 0.5, 0.4, 1.5, 4.0, 5.0, 0.3, 0.0, 0.03, 0.08), strict=True)),
    "backward": dict(zip(KINDS, (0.7, 1.0, 0.3, 1.5, 5.0, 5.0, 0.5, 0.0, 0.0, 0.0), strict=True)),
    "optimizer": dict(zip(KINDS, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 4.0, 0.0, 0.0), strict=True)),
}
"""of single calls; what is 0 is left out"""
HELD, TOLERATED = 2.0, 0.08
"""towards them: as if each mean contribution were measured so often more; distance from which a program counts less"""
HOOKED = ("replicas", "fsdp1", "fsdp2", "titan")
LEFT_OUT = (*HOOKED, "checkpointed")
"""have hooks of their own, or a forward pass inside the backward"""
WAITED_MS = 2.0
"""longest that the GPU may work on behind the host"""


def counted(name: str) -> list[dict[str, Any]]:
    import trace_programs
    from shardwise.trace.capture import traced
    from shardwise.trace.launches import kind_of

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        text = trace_programs.SCRIPT.format(folder=str(trace_programs.HERE), name=name)
        script.write_text(text, encoding="utf-8")
        found = traced(script, 1)
    phases: dict[str, Counter[str]] = {}
    for event in found.events:
        if event.calls:
            counts = phases.setdefault(event.phase, Counter())
            counts[kind_of(event)] += 1
            counts["view"] += event.calls - 1 - event.quiet
            counts["quiet"] += event.quiet
            counts["functions"] += event.python[0]
            counts["builtins"] += event.python[1]
    return [{"name": name, "phase": phase, **counts} for phase, counts in phases.items()]


def table(phase: str) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Names, counts times the machine's operation, and microseconds."""
    with (BENCHMARKS / "trace-host-h200.csv").open(encoding="utf-8", newline="") as file:
        times = {row["name"]: row for row in csv.DictReader(file) if row["whole_ms"]}
    names, counts, spent = [], [], []
    with (BENCHMARKS / "trace-host-counts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            time = times.get(row["name"])
            if row["phase"] != phase or time is None or row["name"].endswith(LEFT_OUT):
                continue
            if float(time["waited_ms"]) < WAITED_MS:
                names.append(row["name"])
                asked = [float(row[kind] or 0) * bool(SINGLE[phase][kind]) for kind in KINDS]
                counts.append([float(time["host_us"]) * many for many in asked])
                spent.append(1e3 * float(time[f"{phase}_ms"]))
    return names, np.array(counts), np.array(spent)


def fitted(counts: NDArray[np.float64], spent: NDArray[np.float64], single: dict[str, float]) -> NDArray[np.float64]:
    """Programs that are far off count less, in a few rounds."""
    shares = counts / spent[:, None]
    held = HELD * shares.mean(0)
    weights = np.ones(len(spent))
    for _ in range(6):
        wanted = np.concatenate([weights, held * np.array([single[kind] for kind in KINDS])])
        found: NDArray[np.float64] = nnls(np.vstack([shares * weights[:, None], np.diag(held)]), wanted)[0]
        weights = np.sqrt(TOLERATED / np.maximum(np.abs(shares @ found - 1.0), TOLERATED))
    return found


def fit() -> dict[str, Any]:
    said: dict[str, Any] = {}
    whole: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    for phase, single in SINGLE.items():
        names, counts, spent = table(phase)
        weights = fitted(counts, spent, single)
        errors = []
        for place, name in enumerate(names):
            others = np.arange(len(names)) != place
            guess = float(counts[place] @ fitted(counts[others], spent[others], single))
            errors.append(abs(guess / spent[place] - 1.0))
            guessed[name] += guess
            whole[name] += spent[place]
        said[phase] = {"programs": len(names), "left_out_mape": mean(errors),
                       "weights": {k: round(float(w), 3) for k, w in zip(KINDS, weights, strict=True)}}  # fmt: skip
    errors = [abs(guessed[name] / whole[name] - 1.0) for name in whole]
    return said | {"whole": {"left_out_mape": mean(errors), "left_out_median": median(errors)}}


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
        writer = csv.DictWriter(file, ["name", "phase", *KINDS])
        writer.writeheader()
        for name in names:
            writer.writerows(counted(name))
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
