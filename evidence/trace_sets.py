"""How today's code, without a profile of the machine, predicts every set of traced programs that was measured.

    python evidence/trace_sets.py [--json]

Predictions are those of `evidence/accuracy/h200_programs_now.csv` (seen data, no proof of anything). Programs are told
apart by who sets the pace: the host, where the GPU waits for it for more than `WAITS` of the predicted step. The last
column answers whether the default speed of the host is the best: the speed that is best for all other sets, and the
error with it. Errors are shares; `again` are programs measured once more, behind the eighth set.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

import trace_programs

FOLDER = Path(__file__).resolve().parent.parent / "evidence" / "accuracy"
SETS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "again")
WAITS = 0.05
TRIED = range(16, 25)
DEFAULT = trace_programs.USUAL_HOST
Row = dict[str, Any]


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def measured(kind: str) -> dict[str, dict[str, str]]:
    names = {"first": "h200_programs_measured.csv", "again": "h200_programs_later_look.csv"}
    return rows_of(FOLDER / names.get(kind, f"h200_programs_{kind}_measured.csv"))


def errors_of(kind: str, predicted: dict[str, dict[str, str]]) -> list[Row]:
    found = []
    for name, row in measured(kind).items():
        if row["step_ms"] and name in predicted:
            guess = predicted[name]
            steps = {host: trace_programs._at(guess, host) / float(row["step_ms"]) - 1.0 for host in TRIED}
            waits = float(guess["host_ms"]) / float(guess[f"step_ms_host_{DEFAULT}us"]) > WAITS
            memory = float(guess["peak_gib"]) / float(row["peak_alloc_gib"]) - 1.0
            found.append({"name": name, "steps": steps, "waits": waits, "memory": memory})
    return found


def size(rows: list[Row], host: int = DEFAULT) -> float:
    return mean(abs(row["steps"][host]) for row in rows) if rows else 0.0


def summary() -> list[Row]:
    predicted = rows_of(FOLDER / "h200_programs_now.csv")
    sets = {kind: errors_of(kind, predicted) for kind in SETS}
    found = []
    for kind, rows in sets.items():
        others = [row for other, more in sets.items() if other != kind for row in more]
        best = min(TRIED, key=lambda host, others=others: size(others, host))  # type: ignore[misc]
        found.append({
            "set": kind, "programs": len(rows), "time_mape": size(rows),
            "time_median": median(abs(row["steps"][DEFAULT]) for row in rows),
            "gpu_programs": sum(not row["waits"] for row in rows),
            "gpu_mape": size([row for row in rows if not row["waits"]]),
            "host_mape": size([row for row in rows if row["waits"]]),
            "memory_mape": mean(abs(row["memory"]) for row in rows), "best_without_us": best,
            "time_mape_with_that": size(rows, best),
        })  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    found = summary()
    if parser.parse_args().json:
        print(json.dumps(found))
        return 0
    for row in found:
        print(f"{row['set']:8} {row['programs']:3} time {row['time_mape']:6.1%} median {row['time_median']:6.1%} "
              f"GPU ({row['gpu_programs']}) {row['gpu_mape']:6.1%} host {row['host_mape']:6.1%} "
              f"memory {row['memory_mape']:6.1%} best of the others {row['best_without_us']} us "
              f"{row['time_mape_with_that']:6.1%}")  # fmt: skip
    every = [row for kind in SETS for row in errors_of(kind, rows_of(FOLDER / "h200_programs_now.csv"))]
    print("all", len(every), {host: round(size(every, host), 4) for host in TRIED},
          f"GPU {size([row for row in every if not row['waits']]):.1%} host "
          f"{size([row for row in every if row['waits']]):.1%}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
