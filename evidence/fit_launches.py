"""Fits what the host needs for each kind of operator (`run/trace/launches.py`) to host times of whole programs.

    python evidence/fit_launches.py count --out evidence/timed/trace-threads-counts.csv   # traces them, on a CPU
    python evidence/fit_launches.py fit [--table host]                                     # prints weights and errors

`trace_look.py` has measured the times (`evidence/timed/trace-threads-h200.csv`). Weights are in operations of the
thread that runs the pass, measured before each step: of the script's thread the lower of two measurements, since what a
step leaves behind can slow the one that comes first. `--table host`: an earlier table, of both threads together, whose
counts have Python that only the tracing called. Each weight is held towards that of single calls
(`trace-machine-h200.csv`), so that kinds which always come together are told apart, and Python's at the earlier one:
hooks of checkpoints and FSDP, which are left out here, agree with it (`launches.py`: forward between this and the
same with both measurements' mean, backward between the two tables).
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

BENCHMARKS = Path(__file__).resolve().parent.parent / "evidence" / "timed"
KINDS = ["plain", "cast", "view", "product", "convolution", "attention", "quiet", "list", "functions", "builtins"]
SINGLE = {
    "forward": dict(zip(KINDS, (0.9, 0.5, 0.4, 1.5, 4.0, 5.0, 0.3, 0.0, 0.03, 0.087), strict=True)),
    "backward": dict(zip(KINDS, (0.7, 1.0, 0.3, 1.5, 5.0, 5.0, 0.5, 0.0, 0.0, 0.0), strict=True)),
    "optimizer": dict(zip(KINDS, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 4.0, 0.0, 0.0), strict=True)),
}
"""of single calls; what is 0 is left out"""
HELD, FIRMLY, TOLERATED = 2.0, 100.0, 0.08
"""towards them: as if each mean contribution were measured so often more; the same of Python's; distance from which a
program counts less"""
PYTHON = ("functions", "builtins")
HOOKED = ("replicas", "fsdp1", "fsdp2", "titan")
LEFT_OUT = (*HOOKED, "checkpointed")
"""have hooks of their own, or a forward pass inside the backward"""
OPERATION_OF_LAUNCH = 2.016
"""of an operation's time in the script's thread, to that of an operator without autograd: median of the table"""
WAITED_MS = 2.0
"""longest that the GPU may work on behind the host"""


def counted(name: str) -> list[dict[str, Any]]:
    import trace_programs
    from shardwise.run.trace.capture import traced
    from shardwise.run.trace.launches import kind_of

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


def speed(time: dict[str, str], phase: str) -> float:
    """Microseconds of an operation in the thread of the pass."""
    if "main_us" not in time:
        return float(time["host_us"])
    if phase == "backward":
        return float(time["autograd_us"])
    return min(float(time["main_us"]), OPERATION_OF_LAUNCH * float(time["launch_us"]))


def table(phase: str, which: str) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Names, counts times the thread's operation, and microseconds."""
    with (BENCHMARKS / f"trace-{which}-h200.csv").open(encoding="utf-8", newline="") as file:
        times = {row["name"]: row for row in csv.DictReader(file) if row["whole_ms"]}
    names, counts, spent = [], [], []
    with (BENCHMARKS / f"trace-{which}-counts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            time = times.get(row["name"])
            if row["phase"] != phase or time is None or row["name"].endswith(LEFT_OUT):
                continue
            if float(time["waited_ms"]) < WAITED_MS:
                names.append(row["name"])
                asked = [float(row[kind] or 0) * bool(SINGLE[phase][kind]) for kind in KINDS]
                counts.append([speed(time, phase) * many for many in asked])
                spent.append(1e3 * float(time[f"{phase}_ms"]))
    return names, np.array(counts), np.array(spent)


def fitted(counts: NDArray[np.float64], spent: NDArray[np.float64], single: dict[str, float]) -> NDArray[np.float64]:
    """Programs that are far off count less, in a few rounds."""
    shares = counts / spent[:, None]
    held = np.array([FIRMLY if kind in PYTHON else HELD for kind in KINDS]) * shares.mean(0)
    weights = np.ones(len(spent))
    for _ in range(6):
        wanted = np.concatenate([weights, held * np.array([single[kind] for kind in KINDS])])
        found: NDArray[np.float64] = nnls(np.vstack([shares * weights[:, None], np.diag(held)]), wanted)[0]
        weights = np.sqrt(TOLERATED / np.maximum(np.abs(shares @ found - 1.0), TOLERATED))
    return found


def fit(which: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    whole: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    for phase, single in SINGLE.items():
        names, counts, spent = table(phase, which)
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
    parser.add_argument("--table", choices=("threads", "host"), default="threads", help="fit: the table")
    parser.add_argument("--only", metavar="NAMES", help="count: these, with commas between")
    parser.add_argument("--out", type=Path, help="count: CSV to write")
    asked = parser.parse_args()
    if asked.verb == "fit":
        print(json.dumps(fit(asked.table), indent=1))
        return 0
    with (BENCHMARKS / "trace-threads-h200.csv").open(encoding="utf-8", newline="") as file:
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
