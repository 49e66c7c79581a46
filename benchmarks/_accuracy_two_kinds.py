"""Runs that are much slower than predicted by amounts that nothing in the tables explains."""

from collections import defaultdict
from dataclasses import replace
from itertools import groupby

import numpy as np

from _accuracy_csv import TABLES, Cell, Table
from _accuracy_data import predictions
from _accuracy_tables import percent
from shardwise.measured.validate.predict import Prediction
from shardwise.measured.validate.score import metrics, scored
from shardwise.measured.validate.table import MeasuredRow

STAGED, CLUSTERED = "nanotron-ultrascale", "vTrain-multi"
SLOW_S = 0.15
"""a message this much longer than predicted marks a slow run: fast ones lie far below, slow ones far above"""
NEAR, FAR = 0.05, 0.09
CHARGES = tuple(percent / 100 for percent in range(1, 21))
LAYOUT = (("tp", "tp"), ("pp", "pp"), ("dp", "dp"), ("mb", "micro_batch"))


def stage_waits() -> tuple[str, list[Table]]:
    """What is told about runs with pipeline stages, and the counts; empty where their rows are not at hand."""
    quiet = _quiet()
    staged = [one for one in quiet if one.step_s and (one.measured.whole("pp") or 1) > 1]
    found = sorted((_nodes(one.measured), _wait(one)) for one in staged)
    if not found:
        return "", []
    rows: list[list[Cell]] = []
    for nodes, runs in groupby(found, key=lambda pair: pair[0]):
        waits = np.array([wait for _, wait in runs])
        slow = waits > SLOW_S
        rows.append([int(nodes), len(waits), int(slow.sum()), float(np.median(waits[slow])) if slow.any() else None])
    few, many = rows[0], rows[-1]
    text = (
        f"Runs of {STAGED} with pipeline stages come in two kinds: as predicted, or slower by about the same time for "
        f"every message between stages: {few[2]} of {few[1]} runs on "
        f"{few[0]} node, {many[2]} of {many[1]} on {many[0]} ([by nodes]({TABLES}/stage_waits.csv)). Nothing in the "
        f"table tells which, but that {_of_full(staged)}. None of it is predicted; an estimate with stages over nodes "
        "says so."
    )
    about = f"how many runs of {STAGED} with stages are slow, by nodes, and by how much for each message between stages"
    return text, [Table("stage_waits", about, ("nodes", "runs", "slow_runs", "extra_s_per_message"), rows)]


def _of_full(staged: list[Prediction]) -> str:
    """How many runs are slow, of those that should not fit and of the others."""
    slow = {bad: [_wait(one) > SLOW_S for one in staged if (one.verdict == "oom") == bad] for bad in (True, False)}
    counts = [f"{sum(found)} of {len(found)}" for found in slow.values()]
    return f"{counts[0]} runs that should not fit are slow, and {counts[1]} others"


def _quiet() -> list[Prediction]:
    """Every run of the source."""
    return [p for p in predictions() if p.measured.word("source") == STAGED]


def _nodes(row: MeasuredRow) -> float:
    return (row.number("gpus") or 8.0) / 8.0


def _wait(one: Prediction) -> float:
    """Seconds over the prediction, for each message a stage of the middle (or one of two) takes or sends."""
    row = one.measured
    pp, micro = row.number("pp") or 1.0, row.number("grad_accum") or 1.0
    messages = 2.0 * min(pp - 1.0, 2.0) * (micro + pp - 1.0)
    return ((row.number("step_seconds") or 0.0) - (one.step_s or 0.0)) / messages


def slow_degrees() -> tuple[str, list[Table]]:
    """What is told about tensor parallelism of 2 and 4 over several nodes, and the tables."""
    rows = [p for p in predictions() if p.measured.word("source") == CLUSTERED and scored(p) and p.error is not None]
    if not rows:
        return "", []
    split = [p for p in rows if p.measured.whole("tp") in (2, 4) and (p.measured.whole("dp") or 0) >= 16]
    others = [p for p in rows if p not in split]
    errors, rest = (np.array([p.error for p in part]) for part in (split, others))
    near, far = np.abs(errors) < NEAR, errors < -FAR
    chosen, charged = _chosen(rows), _charged(rows, split)
    text = (
        f"Of {len(errors)} runs of {CLUSTERED} with tensor parallelism of 2 or 4 and 16 or more replicas, "
        f"{int(near.sum())} lie within {percent(NEAR)} and {int(far.sum())} ran {percent(FAR)} to "
        f"{percent(float(-errors.min()))} slower than predicted; the other {len(rest)} err by "
        f"{percent(float(np.median(np.abs(rest))))} in the median. No cause was found, and [one share "
        f"more]({TABLES}/vtrain_charged.csv) for them does not help the choice. Had it run at its predicted time, "
        f"[the layout chosen]({TABLES}/vtrain_choice.csv) would have been the fastest in {_firsts(chosen)} of "
        f"{len(chosen.rows)} jobs."
    )
    return text, [chosen, charged]


def _charged(rows: list[Prediction], slow: list[Prediction]) -> Table:
    """What a rule would do that makes those runs slower by one share, whatever the share."""
    tried: list[list[Cell]] = []
    for share in CHARGES:
        longer = [
            replace(p, tokens_per_s_per_gpu=(p.tokens_per_s_per_gpu or 0.0) / (1.0 + share * (p in slow))) for p in rows
        ]
        found = metrics(longer)
        tried.append([share, found["regret"], found["mape"]])
    about = f"what charging the slow runs of {CLUSTERED} one share more does to its scores: tried and dropped"
    return Table("vtrain_charged", about, ("charge", "regret", "mean_error"), tried)


def _chosen(rows: list[Prediction]) -> Table:
    """For each job the layout predicted best, beside the one that was."""
    jobs: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for row in rows:
        jobs[row.measured.word("model"), row.measured.word("gpus")].append(row)
    lines: list[list[Cell]] = []
    for (model, gpus), runs in jobs.items():
        chosen = max(runs, key=lambda p: p.tokens_per_s_per_gpu or 0.0)
        best = max(runs, key=lambda p: p.measured.tokens_per_s_per_gpu or 0.0)
        took, fastest = (p.measured.number("step_seconds") or 0.0 for p in (chosen, best))
        said = chosen.step_s or 0.0
        lines.append([model, gpus, _layout(chosen), said, took, _layout(best), fastest, fastest / took])
    head = (
        "model",
        "gpus",
        "predicted_best",
        "predicted_s",
        "measured_s",
        "measured_best",
        "measured_best_s",
        "reached",
    )
    return Table(
        "vtrain_choice", f"the layout predicted best for each job of {CLUSTERED}, beside the best", head, lines
    )


def _firsts(chosen: Table) -> int:
    """Jobs in which the layout chosen, at its predicted time, beats the best measured."""
    said, fastest = chosen.head.index("predicted_s"), chosen.head.index("measured_best_s")
    return sum(float(row[said] or 0) <= float(row[fastest] or 0) for row in chosen.rows)


def _layout(one: Prediction) -> str:
    return " ".join(f"{name}{one.measured.word(column)}" for name, column in LAYOUT)
