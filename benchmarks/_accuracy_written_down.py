"""Steps that were predicted first, committed, and measured afterwards: the fairest test there is."""

import csv
from pathlib import Path

import numpy as np

from _accuracy_tables import markdown, percent
from shardwise.estimate.band import HOST_BOUND
from shardwise.validate.one_gpu import one_gpu_predictions

SETS = (
    ("h200_fresh", "32 chosen configurations (dense, grouped-query, long, expert, compiled or not, launch-bound), with "
     "the constants as they were before any of them was measured"),
    ("h200_second", "24 random configurations, with the constants after the first set had been seen"),
    ("h200_third", "28 drawn by `benchmarks/draw_steps.py --seed 3`, with memory counted tensor by tensor"),
    ("h200_fourth", "28 drawn with `--seed 4`, with element-wise work counted kernel by kernel"),
    ("h200_fifth", "28 drawn with `--seed 5`, with fewer launches for a recomputed layer after the fourth set"),
)  # fmt: skip


def written_down(folder: Path) -> str:
    """A section with every set: errors over all, and every row."""
    parts = [
        "### Predicted first, then measured\n",
        "*(host)*: today's constants say that the GPU waits for the host there, and hosts differ more than GPUs do.\n",
    ]
    for name, what in SETS:
        predicted = {row["name"]: row for row in _rows(folder / f"{name}_predicted.csv")}
        measured = _rows(folder / f"{name}_measured.csv")
        steps = np.array([float(predicted[r["name"]]["predicted_step_ms"]) / float(r["step_ms"]) - 1 for r in measured])
        peaks = np.array(
            [float(predicted[r["name"]]["predicted_peak_gib"]) / float(r["peak_alloc_gib"]) - 1 for r in measured]
        )
        waits = np.array([one.host_share > HOST_BOUND for one in one_gpu_predictions(folder / f"{name}_measured.csv")])
        parts.append(
            f"`docs/accuracy/{name}_predicted.csv`, {what}: step {percent(np.abs(steps).mean())} mean, "
            f"{percent(np.median(np.abs(steps)))} median, {percent(np.abs(steps).max())} at most "
            f"({percent(np.abs(steps[~waits]).mean())} mean over the {int((~waits).sum())} in which kernels set the "
            f"pace); peak memory {np.abs(peaks).mean():.2%} mean, {percent(np.abs(peaks).max())} at most.\n"
        )
        lines = [
            [row["name"] + " (host)" * bool(wait), f"{float(row['step_ms']):.1f}", percent(step, signed=True),
             f"{float(row['peak_alloc_gib']):.1f}", percent(peak, signed=True)]
            for row, step, peak, wait in zip(measured, steps, peaks, waits, strict=True)
        ]  # fmt: skip
        parts.append(markdown(("step", "measured ms", "error", "measured GiB", "error"), lines))
    return "\n".join(parts)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
