"""The tables of docs/accuracy.md: every number from predictions and stored folds, as Markdown."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from _accuracy_data import SHIPPED, fits_source, fitted_with, predictions, tables
from _accuracy_folds import Record
from shardwise.software import Stack, stack_of
from shardwise.validate.predict import Prediction, predict
from shardwise.validate.score import metrics, scored
from shardwise.validate.table import read_table

FEWEST = 5
"""sources with fewer rows are one line together"""
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


def score_line(name: str, found: dict[str, Any]) -> list[str]:
    return [
        name, f"{found['n']:,}", f"{found['supported']:,}", percent(found["mape"]), percent(found["median_ape"]),
        percent(found["bias"], signed=True), percent(found["within_20"]), plain(found["spearman"]),
        plain(found["regret"]), percent(found["memory_mape"]),
    ]  # fmt: skip


SCORE_HEAD = ("", "rows", "predicted", "mean error", "median", "bias", "within 20 %", "rank", "regret", "memory")


def _by_source(found: Iterable[Prediction]) -> list[tuple[str, list[Prediction]]]:
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in found:
        groups[prediction.measured.word("source")].append(prediction)
    large = sorted(((n, g) for n, g in groups.items() if len(g) >= FEWEST), key=lambda item: -len(item[1]))
    few = [(n, g) for n, g in groups.items() if len(g) < FEWEST]
    together = [p for _, group in few for p in group]
    return [*large, *([(f"{len(few)} sources below {FEWEST} rows", together)] if few else [])]


def headline() -> str:
    """Whole tables first (scored and unfiltered), then the sources (scored)."""
    lines, start = [], 0
    for path in tables():
        part = list(predictions()[start : (start := start + len(read_table(path)))])
        lines += [score_line(f"**{path.name}**, scored", metrics([p for p in part if scored(p)]))]
        lines += [score_line(f"**{path.name}**, every row", metrics(part))]
    if tables() != [SHIPPED]:
        part = predict(read_table(SHIPPED))
        lines += [score_line(f"**{SHIPPED.name}** (ships), scored", metrics([p for p in part if scored(p)]))]
    lines += [score_line(name, metrics(g)) for name, g in _by_source(p for p in predictions() if scored(p))]
    return markdown(SCORE_HEAD, lines)


def unfiltered() -> str:
    """Sources whose unfiltered score differs from the scored one."""
    lines = []
    for name, group in _by_source(predictions()):
        kept = [p for p in group if scored(p)]
        if len(kept) < len(group):
            contradicts = sum("CHECK-FAIL" in p.measured.word("notes") for p in group)
            found, before = metrics(group), metrics(kept)
            lines.append([name, f"{len(group):,}", f"{contradicts:,}", f"{len(group) - len(kept) - contradicts:,}",
                          percent(before["mape"]), percent(found["mape"]), percent(found["median_ape"]),
                          percent(found["bias"], signed=True)])  # fmt: skip
    head = ("", "rows", "contradictory", "below 5 % of peak", "mean error, scored", "every row", "median", "bias")
    return markdown(head, lines)


def held_out(stacks: list[Stack], records: dict[str, Record], now: dict[str, float], stale: set[str]) -> str:
    lines = []
    for stack in stacks:
        record = records.get(stack.name)
        if record is None:
            continue
        out, memory = record["held_out"], record["held_out_memory"]
        lines.append([stack.name + (" *" if stack.name in stale else ""), stack.fitted_on,
                      f"{out['rows']:,}", str(record["groups"]), str(len(stack.fitted)), percent(now[stack.name]),
                      percent(record["all_rows"]["mape"]), f"**{percent(out['mape'])}**", percent(out["median"]),
                      percent(out["bias"], signed=True), percent(out["within_20"]),
                      percent(memory["mape"] if memory else None)])  # fmt: skip
    head = ("stack", "fitted on", "rows", "groups", "settings", "shipped constants", "fit on all rows", "held out",
            "median", "bias", "within 20 %", "memory, held out")  # fmt: skip
    return markdown(head, lines, left=2)


def never_fitted(stacks: list[Stack]) -> str:
    """Sources that no stack's constants were fitted on."""
    free = [p for p in predictions() if scored(p) and p.error is not None
            and not any(fitted_with(stack_of(p.stack), s) and fits_source(s, p.measured.word("source"))
                        for s in stacks)]  # fmt: skip
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for prediction in free:
        groups[prediction.measured.word("source"), prediction.stack].append(prediction)
    lines = [[source, stack, *_short(group)] for (source, stack), group in sorted(groups.items())]
    lines.append(["**together**", "", *_short(free)])
    return markdown(("source", "predicted as", "rows", "mean error", "median", "bias"), lines, left=2)


def _short(group: list[Prediction]) -> list[str]:
    found = metrics(group)
    errors = (percent(found["mape"]), percent(found["median_ape"]), percent(found["bias"], signed=True))
    return [f"{found['n']:,}", *errors]


def residuals() -> str:
    """Mean signed and absolute error of the scored rows by one property at a time."""
    found = [p for p in predictions() if scored(p) and p.error is not None and p.policy is not None]
    properties: list[tuple[str, list[float]]] = [
        ("tp", [p.policy.tp for p in found if p.policy]),
        ("pp", [p.policy.pp for p in found if p.policy]),
        ("micro-batch", [p.policy.micro_batch for p in found if p.policy]),
        ("GPUs", [p.measured.number("gpus") or 0 for p in found]),
        ("sequence", [p.measured.number("seq") or 0 for p in found]),
        ("billion parameters", [p.measured.number("params_b") or 0 for p in found]),
    ]
    errors = np.array([p.error for p in found])
    lines = []
    for name, values in properties:
        for label, inside in _bins(np.array(values)):
            if inside.sum() >= FEWEST:
                part = errors[inside]
                lines.append([name, label, f"{inside.sum():,}", percent(float(np.abs(part).mean())),
                              percent(float(part.mean()), signed=True)])  # fmt: skip
    return markdown(("by", "", "rows", "mean error", "bias"), lines, left=2)


def by_model(fewest: int = 10) -> str:
    """Every row of a model that several sources or releases measured, rows whose source contradicts itself included."""
    models: dict[str, list[Prediction]] = defaultdict(list)
    for one in predictions():
        if one.error is not None:
            models[one.measured.word("model")].append(one)
    common = sorted((item for item in models.items() if len(item[1]) >= fewest), key=lambda item: -len(item[1]))
    return markdown(("model", "rows", "mean error", "median", "bias"), ([name, *_short(g)] for name, g in common))


def _bins(values: Any) -> list[tuple[str, Any]]:
    """Steps of four: 1, 2-4, 5-16, ...; fewer than 1 is the first bin (billions of parameters)."""
    edges = [0.0, 1.0] + [4.0**k for k in range(1, 12)]
    bins = [(low, high, (values > low) & (values <= high)) for low, high in pairwise(edges)]
    return [("up to 1" if high == 1 else f"{low:,.0f} < x <= {high:,.0f}", inside) for low, high, inside in bins]


def worst(count: int = 12) -> str:
    found = sorted((p for p in predictions() if scored(p) and p.error is not None), key=lambda p: -abs(p.error or 0.0))
    lines = []
    for p in found[:count]:
        row, policy = p.measured, p.policy
        layout = " ".join(f"{a}{getattr(policy, a)}" for a in ("dp", "tp", "pp", "cp", "ep") if getattr(policy, a) > 1)
        lines.append([row.word("source"), row.word("model"), f"{row.word('gpus')} x {row.word('gpu')}", layout,
                      row.word("dtype"), percent(p.error, signed=True)])  # fmt: skip
    return markdown(("source", "model", "GPUs", "layout", "dtype", "error"), lines, left=5)


def share_of_error(count: int = 8) -> str:
    """Which sources the mean error is made of."""
    found = [p for p in predictions() if scored(p) and p.error is not None]
    total = sum(abs(p.error or 0.0) for p in found)
    sums: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for p in found:
        sums[p.measured.word("source")] += abs(p.error or 0.0)  # type: ignore[assignment]
        rows[p.measured.word("source")] += 1
    lines = [[s, f"{rows[s]:,}", percent(rows[s] / len(found)), percent(v / total)] for s, v in sums.most_common(count)]
    return markdown(("source", "rows", "share of rows", "share of the summed error"), lines)


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
