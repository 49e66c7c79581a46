"""Runs whose source publishes a rate of FLOP and no tokens: held against predictions, in no score and in no fit."""

from _accuracy_csv import Cell, Table
from _accuracy_data import predictions
from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import Prediction
from shardwise.step.estimate.mfu import conventions

MODEL, HARDWARE = ("full_square", "causal_half"), ("hardware",)


def rates_alone() -> Table:
    """A source that says *model* may or may not halve the attention square, one that says *hardware* counts
    recomputation, one that says nothing may mean any."""
    found = [p for p in predictions() if p.policy and _published(p) and not p.measured.tokens_per_s_per_gpu]
    rows = [_line(p) for p in found if "CHECK-FAIL" not in p.measured.word("notes")]
    head = ("source", "model", "gpus", "stack", "tflops_per_gpu", "error_whole_square", "error_causal_half",
            "error_recompute_counted")  # fmt: skip
    about = "runs that publish TFLOP/s and no tokens: the error by each definition of FLOP that the source leaves open"
    return Table("flops_alone", about, head, rows)


def _published(one: Prediction) -> float:
    return (one.measured.number("tflops_per_gpu") or 0.0) * 1e12


def _line(one: Prediction) -> list[Cell]:
    row = one.measured
    errors = errors_by_definition(one)
    cells = [errors.get(key) for key in (*MODEL, *HARDWARE)]
    return [row.word("source"), row.word("model"), row.word("gpus"), one.stack, round(_published(one) / 1e12), *cells]


def errors_by_definition(one: Prediction) -> dict[str, float]:
    """Predicted over measured step time, less 1, by each definition of FLOP that the row leaves open."""
    case = measured_case(one.measured)
    recompute = one.policy.recompute if one.policy else "none"
    said = one.measured.word("tflops_definition")
    named = {"model": MODEL, "hardware": HARDWARE}.get(said, MODEL + HARDWARE)
    counts = {c.key: c.flops_per_token for c in conventions(case.model, case.job.seq, recompute)}
    predicted = one.tokens_per_s_per_gpu or 1.0
    return {key: _published(one) / counts[key] / predicted - 1 for key in named}
