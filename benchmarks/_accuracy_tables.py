"""Tables of docs/accuracy: every number from predictions and stored folds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from _accuracy_csv import Cell, Table
from _accuracy_data import SHIPPED, fitted_with, predictions, tables
from _accuracy_folds import Record
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.score import metrics, scored
from shardwise.measured.validate.table import read_table
from shardwise.spec.software import Stack, stack_of

FEWEST = 5
"""a bin of fewer rows says nothing"""
MEASURED_COLUMNS = {
    "source_ref", "tflops_per_gpu", "tflops_definition", "mfu", "tokens_per_s_per_gpu", "step_seconds", "peak_mem_gb",
    "notes", "grad_accum", "params_b",
}  # fmt: skip


def percent(value: float | None, signed: bool = False) -> str:
    return "-" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows]) + "\n"


def headline() -> str:
    """Whole tables, scored and unfiltered."""
    lines, start = [], 0
    for path in tables():
        part = list(predictions()[start : (start := start + len(read_table(path)))])
        lines.append(_score_line(f"`{path.name}`, scored", metrics([p for p in part if scored(p)])))
        lines.append(_score_line(f"`{path.name}`, every row", metrics(part)))
    if tables() != [SHIPPED]:
        part = predict(read_table(SHIPPED))
        lines.append(_score_line(f"`{SHIPPED.name}` (ships), scored", metrics([p for p in part if scored(p)])))
    head = ("", "runs", "predicted", "mean error", "median", "bias", "within 20 %", "rank", "regret", "memory")
    return markdown(head, lines)


def _score_line(name: str, found: dict[str, Any]) -> list[str]:
    return [
        name, f"{found['n']:,}", f"{found['supported']:,}", percent(found["mape"]), percent(found["median_ape"]),
        percent(found["bias"], signed=True), percent(found["within_20"]), plain(found["spearman"]),
        plain(found["regret"]), percent(found["memory_mape"]),
    ]  # fmt: skip


def _groups(found: Iterable[Prediction], key: Callable[[Prediction], str]) -> list[tuple[str, list[Prediction]]]:
    """The largest group first."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in found:
        groups[key(prediction)].append(prediction)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def source_of(one: Prediction) -> str:
    return one.measured.word("source")


def by_source() -> Table:
    """Every source: scores of the rows that count, then of all of its rows, then its part in the summed error."""
    sums = {
        source: sum(abs(p.error or 0.0) for p in group if scored(p))
        for source, group in _groups(predictions(), source_of)
    }
    counted = sum(p.error is not None and scored(p) for p in predictions())
    rows: list[list[Cell]] = []
    for source, group in _groups(predictions(), source_of):
        kept = [p for p in group if scored(p)]
        contradicts = sum("CHECK-FAIL" in p.measured.word("notes") for p in group)
        few, every = metrics(kept), metrics(group)
        share = sum(p.error is not None for p in kept) / counted
        rows.append(
            [source, len(group), contradicts, len(group) - len(kept) - contradicts, few["n"], few["supported"],
             few["mape"], few["median_ape"], few["bias"], few["within_20"], few["spearman"], few["regret"],
             few["memory_mape"], every["mape"], every["median_ape"], every["bias"], share,
             sums[source] / sum(sums.values())]
        )  # fmt: skip
    head = ("source", "rows", "contradictory_rows", "rows_below_5_percent_of_peak", "scored_rows", "predicted",
            "mean_error", "median_error", "bias", "within_20_percent", "rank", "regret", "memory_mean_error",
            "mean_error_every_row", "median_error_every_row", "bias_every_row", "share_of_scored_rows",
            "share_of_summed_error")  # fmt: skip
    return Table("by_source", "scores of every source, of the rows that count and of all", head, rows)


def held_out(stacks: list[Stack], records: dict[str, Record], now: dict[str, float], stale: set[str]) -> Table:
    rows: list[list[Cell]] = []
    for stack in stacks:
        record = records.get(stack.name)
        if record is not None:
            out, memory = record["held_out"], record["held_out_memory"]
            rows.append(
                [stack.name, stack.fitted_on, out["rows"], record["groups"], len(stack.fitted), now[stack.name],
                 record["all_rows"]["mape"], out["mape"], out["median"], out["bias"], out["within_20"],
                 memory["mape"] if memory else None, "yes" if stack.name in stale else "no"]
            )  # fmt: skip
    head = ("stack", "fitted_on", "rows", "groups", "fitted_settings", "mean_error_shipped", "mean_error_fitted_on_all",
            "mean_error_held_out", "median_error_held_out", "bias_held_out", "within_20_percent_held_out",
            "memory_mean_error_held_out", "settings_changed_since")  # fmt: skip
    return Table("held_out", "cross-validation of every stack whose constants were fitted", head, rows)


def unfitted(stacks: list[Stack]) -> list[Prediction]:
    """Scored rows of sources that no stack's constants were fitted on."""

    def fitted(one: Prediction) -> bool:
        return any(fitted_with(stack_of(one.stack), stack) and stack.fitted_to(source_of(one)) for stack in stacks)

    return [p for p in predictions() if scored(p) and p.error is not None and not fitted(p)]


def never_fitted(free: list[Prediction]) -> Table:
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for prediction in free:
        groups[source_of(prediction), prediction.stack].append(prediction)
    rows = [[source, stack, *_short(group)] for (source, stack), group in sorted(groups.items())]
    head = ("source", "stack", "rows", "mean_error", "median_error", "bias")
    return Table("never_fitted", "sources on which no constant was fitted", head, rows)


def _short(group: list[Prediction]) -> list[Cell]:
    found = metrics(group)
    return [found["n"], found["mape"], found["median_ape"], found["bias"]]


def by_property() -> Table:
    """A bias that grows along a property is a cost the model has wrong there."""
    found = [p for p in predictions() if scored(p) and p.error is not None and p.policy is not None]
    properties: list[tuple[str, list[float]]] = [
        ("tp", [p.policy.tp for p in found if p.policy]),
        ("pp", [p.policy.pp for p in found if p.policy]),
        ("micro_batch", [p.policy.micro_batch for p in found if p.policy]),
        ("gpus", [p.measured.number("gpus") or 0 for p in found]),
        ("seq", [p.measured.number("seq") or 0 for p in found]),
        ("billion_parameters", [p.measured.number("params_b") or 0 for p in found]),
    ]
    errors = np.array([p.error for p in found])
    rows: list[list[Cell]] = []
    edges = [0.0, 1.0] + [4.0**k for k in range(1, 12)]
    for name, values in properties:
        for low, high in pairwise(edges):
            part = errors[(np.array(values) > low) & (np.array(values) <= high)]
            if len(part) >= FEWEST:
                rows.append([name, int(low), int(high), len(part), float(np.abs(part).mean()), float(part.mean())])
    head = ("property", "above", "up_to", "rows", "mean_error", "bias")
    return Table("by_property", "scored rows, one property of a run at a time", head, rows)


def by_model() -> Table:
    models = _groups((p for p in predictions() if p.error is not None), lambda p: p.measured.word("model"))
    head = ("model", "rows", "mean_error", "median_error", "bias")
    about = "every row by model, those whose source contradicts itself included"
    return Table("by_model", about, head, [[name, *_short(group)] for name, group in models])


def worst(count: int = 50) -> Table:
    found = sorted((p for p in predictions() if scored(p) and p.error is not None), key=lambda p: -abs(p.error or 0.0))
    rows: list[list[Cell]] = []
    for p in found[:count]:
        row, policy = p.measured, p.policy
        layout = " ".join(f"{a}{getattr(policy, a)}" for a in ("dp", "tp", "pp", "cp", "ep") if getattr(policy, a) > 1)
        rows.append(
            [source_of(p), row.word("model"), row.word("gpus"), row.word("gpu"), layout, row.word("dtype"), p.error]
        )
    head = ("source", "model", "gpus", "gpu", "layout", "dtype", "error")
    return Table("furthest_off", f"the {count} scored rows with the largest errors", head, rows)


def repeats(ignored: frozenset[str] = frozenset()) -> tuple[int, int, float, float]:
    """Rows with equal configuration and different measured speed.

    Sets, rows, mean relative gap between the fastest and slowest of a set, and the mean error of a predictor that
    knows the middle of every set: no predictor of these columns does better.
    """
    sets: dict[tuple[tuple[str, str], ...], list[float]] = defaultdict(list)
    for p in predictions():
        speed = p.measured.tokens_per_s_per_gpu
        if speed and scored(p):
            cells = p.measured.text.items()
            sets[tuple(c for c in cells if c[0] not in MEASURED_COLUMNS | ignored)].append(speed)
    several = [np.array(speeds) for speeds in sets.values() if len(speeds) > 1 and len(set(speeds)) > 1]
    if not several:
        return 0, 0, 0.0, 0.0
    gaps = [float(s.max() / s.min() - 1) for s in several]
    floors = np.concatenate([np.abs(s / np.median(s) - 1) for s in several])
    return len(several), sum(map(len, several)), float(np.mean(gaps)), float(floors.mean())


def path_names(paths: Iterable[Path]) -> str:
    return " and ".join(f"`{path.name}`" for path in paths)
