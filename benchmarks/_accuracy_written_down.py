"""Steps that were predicted first, committed, and measured afterwards: the fairest test there is."""

import csv
from pathlib import Path

import numpy as np

from _accuracy_csv import Cell, Table
from _accuracy_tables import markdown, percent
from shardwise.measured.validate.one_gpu import one_gpu_predictions
from shardwise.step.estimate.causes import CAUSES

HOST_BOUND = 0.2
"""above this share of the step spent waiting for launches, kernels are small and the host decides"""
SETS = (
    ("h200_fresh", "chosen configurations (dense, grouped-query, long, expert, compiled or not, launch-bound)"),
    ("h200_second", "random ones, with constants that had seen the first set"),
    ("h200_third", "random ones (`evidence/draw_steps.py --seed 3`), memory counted tensor by tensor"),
    ("h200_fourth", "random ones (`--seed 4`), element-wise work counted kernel by kernel"),
    ("h200_fifth", "random ones (`--seed 5`), fewer launches for a recomputed layer"),
)


def written_down(folder: Path) -> tuple[str, Table]:
    """One line of scores for every set, and every step."""
    lines, steps_of_all = [], []
    for name, what in SETS:
        found = _steps(folder, name)
        steps, peaks = (np.array([row[column] for row in found], dtype=float) for column in (4, 6))
        kernels = np.array([row[2] == "kernels" for row in found])
        lines.append([
            f"{len(found)} {what}", percent(np.abs(steps).mean()), percent(np.median(np.abs(steps))),
            percent(np.abs(steps).max()), percent(np.abs(steps[kernels]).mean()), f"{np.abs(peaks).mean():.2%}",
            percent(np.abs(peaks).max()),
        ])  # fmt: skip
        steps_of_all += found
    head = ("steps", "step: mean error", "median", "largest", "mean where kernels set the pace", "peak: mean error",
            "largest")  # fmt: skip
    columns = ("set", "step", "pace_set_by", "measured_ms", "error", "measured_gib", "memory_error")
    about = (
        "steps of one H200 that were predicted, committed and then measured; where the host sets the pace (by today's "
        "constants) another host gives another time"
    )
    return markdown(head, lines), Table("predicted_first", about, columns, steps_of_all)


def _steps(folder: Path, name: str) -> list[list[Cell]]:
    predicted = {row["name"]: row for row in _rows(folder / f"{name}_predicted.csv")}
    measured = _rows(folder / f"{name}_measured.csv")
    host = CAUSES.index("host")
    waits = [one.causes[host] > HOST_BOUND for one in one_gpu_predictions(folder / f"{name}_measured.csv")]
    found: list[list[Cell]] = []
    for row, wait in zip(measured, waits, strict=True):
        said, step, peak = predicted[row["name"]], float(row["step_ms"]), float(row["peak_alloc_gib"])
        errors = float(said["predicted_step_ms"]) / step - 1, float(said["predicted_peak_gib"]) / peak - 1
        found.append([name, row["name"], "host" if wait else "kernels", step, errors[0], peak, errors[1]])
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
