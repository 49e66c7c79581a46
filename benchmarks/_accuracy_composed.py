"""Rows that were put together from fewer timings than they are: told by how exactly they add up."""

from collections import defaultdict
from collections.abc import Callable
from statistics import median

from _accuracy_csv import TABLES, Table
from _accuracy_data import predictions
from _accuracy_tables import percent
from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import Prediction
from shardwise.measured.validate.score import scored
from shardwise.step.estimate.mfu import conventions

SOURCE = "vTrain-single"

Cell = tuple[int, int, int]
"""hidden, tensor parallelism, micro-batch"""
Steps = dict[tuple[int, int], dict[int, float]]
"""by (stages, layers): by number of micro-batches, the step in ms"""


def composed() -> tuple[str, list[Table]]:
    """A paragraph and a table; empty where the source's rows are not at hand."""
    rows = [p for p in predictions() if p.measured.word("source") == SOURCE and p.step_s]
    others = [p for p in predictions() if p.measured.word("source") != SOURCE and p.step_s and scored(p)]
    measured = _layers(rows, lambda p: p.measured.number("step_seconds"))
    if not measured:
        return "", []
    predicted = _layers(rows, lambda p: p.step_s)
    apart = [max(times) / min(times) - 1.0 for times in measured.values() if len(times) > 1]
    lines = [[*cell, median(measured[cell]), median(predicted[cell])] for cell in sorted(measured)]
    about = f"time of one layer in one micro-batch, from differences between the steps of {SOURCE}"
    head = ("hidden", "tp", "micro_batch", "measured_ms", "predicted_ms")
    text = (
        f"The {len(rows)} rows of {SOURCE} are fewer measurements than that: differences between them give the time of "
        f"one layer in one micro-batch, and where {len(apart)} of [these times]({TABLES}/vtrain_layers.csv) follow "
        f"from different numbers of stages they agree to {max(apart):.2%}, closer than any run repeats itself. "
        "The rows are read as runs without recomputation, "
        f"although the table says `full`: with it these narrow models would use up to {percent(_fullest(rows))} of the "
        "GPU's peak, and the other A100 runs that recompute and write out their scores reach "
        f"{percent(_fullest(others))} at best."
    )
    return text, [Table("vtrain_layers", about, head, lines)]


def _fullest(rows: list[Prediction]) -> float:
    """The largest share of an A100's peak that a run used if it repeats all layers' forward pass and its attention
    writes its scores."""
    shares = [0.0]
    for row in rows:
        one = row.measured
        if one.word("recompute") == "full" and one.word("flash_attention") == "0" and one.tokens_per_s_per_gpu:
            case = measured_case(one)
            if case.cluster.gpu.architecture == "Ampere":
                counted = {c.key: c.flops_per_token for c in conventions(case.model, case.job.seq, "full")}
                shares.append(one.tokens_per_s_per_gpu * counted["hardware"] / case.cluster.gpu.peak("bf16"))
    return max(shares)


def _layers(rows: list[Prediction], step: Callable[[Prediction], float | None]) -> dict[Cell, list[float]]:
    """ms of one layer in one micro-batch, in each cell for every number of stages that gives it."""
    cells: dict[Cell, Steps] = defaultdict(lambda: defaultdict(dict))
    for row in sorted(rows, key=lambda p: -(p.measured.whole("dp") or 1)):
        names = ("hidden", "tp", "micro_batch", "pp", "layers", "dp", "global_batch")
        hidden, tp, size, pp, layers, dp, batch = (row.measured.whole(name) or 1 for name in names)
        # replicas add to the step, not to the micro-batch: of rows that differ in them the one with the fewest stays
        cells[hidden, tp, size][pp, layers][batch // (dp * size)] = 1e3 * (step(row) or 0.0)
    found: dict[Cell, list[float]] = {}
    for cell, steps in cells.items():
        paces = {key: pace for key, by_number in steps.items() if (pace := _pace(by_number)) is not None}
        times = [
            (paces[pp, most] - paces[pp, least]) * pp / (most - least)
            for pp in sorted({stages for stages, _ in paces})
            if (least := min(n for p, n in paces if p == pp)) < (most := max(n for p, n in paces if p == pp))
        ]
        if times:
            found[cell] = times
    return found


def _pace(by_number: dict[int, float]) -> float | None:
    """ms that one more micro-batch adds."""
    few, many = min(by_number), max(by_number)
    return (by_number[many] - by_number[few]) / (many - few) if many > few else None
