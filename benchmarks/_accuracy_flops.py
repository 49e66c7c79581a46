"""Runs whose source publishes a rate of FLOP and no tokens: held against predictions, in no score and in no fit."""

from _accuracy_data import predictions
from _accuracy_tables import markdown, percent
from shardwise.estimate.mfu import conventions
from shardwise.validate.interpret import measured_case
from shardwise.validate.predict import Prediction

MODEL, HARDWARE = ("full_square", "causal_half"), ("hardware",)


def rates_alone() -> str:
    """A paragraph and a table; empty where no such row is at hand."""
    found = [p for p in predictions() if p.policy and _published(p) and not p.measured.tokens_per_s_per_gpu]
    if not found:
        return ""
    lines = [_line(p) for p in found if "CHECK-FAIL" not in p.measured.word("notes")]
    head = ("source", "model", "GPUs", "predicted as", "TFLOP/s", "whole square", "causal half", "recompute counted")
    table = markdown(head, lines, left=4)
    return (
        f"## Rates of FLOP alone\n\n{len(lines)} more runs publish TFLOP/s per GPU and no tokens. What counts as a "
        "FLOP is then part of the figure, so they are in no score, and no constant was fitted on them. The error by "
        "each definition that is open: a source that says *model* may or may not halve the attention square, one that "
        f"says *hardware* counts recomputation, one that says nothing may mean any.\n\n{table}"
    )


def _published(one: Prediction) -> float:
    return (one.measured.number("tflops_per_gpu") or 0.0) * 1e12


def _line(one: Prediction) -> list[str]:
    row = one.measured
    errors = errors_by_definition(one)
    cells = [percent(errors[key], signed=True) if key in errors else "" for key in (*MODEL, *HARDWARE)]
    return [row.word("source"), row.word("model"), row.word("gpus"), one.stack, f"{_published(one) / 1e12:.0f}", *cells]


def errors_by_definition(one: Prediction) -> dict[str, float]:
    """Predicted over measured step time, less 1, by each definition of FLOP that the row leaves open."""
    case = measured_case(one.measured)
    recompute = one.policy.recompute if one.policy else "none"
    said = one.measured.word("tflops_definition")
    named = {"model": MODEL, "hardware": HARDWARE}.get(said, MODEL + HARDWARE)
    counts = {c.key: c.flops_per_token for c in conventions(case.model, case.job.seq, recompute)}
    predicted = one.tokens_per_s_per_gpu or 1.0
    return {key: _published(one) / counts[key] / predicted - 1 for key in named}
