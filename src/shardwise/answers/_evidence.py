"""`estimate --evidence N`: the measured runs most like a policy, each beside its prediction."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Table, shown, table
from shardwise.plan.nearest import MEASURED, NearestRun, nearest_runs
from shardwise.spec.policy import Policy
from shardwise.work.case import Case


class MeasuredBeside(Struct, frozen=True, kw_only=True):
    """A measured run and its prediction, by the program it used; ratio above 1: the run was slower."""

    run: Annotated[str, shown("run")]
    source: Annotated[str, shown("source")]
    model: str
    gpu: str
    gpus: int
    doublings: Annotated[float, shown("away")]
    unlike: Sequence[str]
    measured_tokens_per_s_per_gpu: Annotated[float | None, shown("measured")]
    predicted_tokens_per_s_per_gpu: Annotated[float | None, shown("predicted")]
    """None where it is not supported"""
    measured_over_predicted: Annotated[float | None, shown("step over predicted")]


def evidence_of(case: Case, policy: Policy, count: int) -> list[MeasuredBeside]:
    """The nearest first; none are looked up where none are asked for."""
    if not count:
        return []
    from shardwise.measured.validate.predict import predict  # most answers show no other runs
    from shardwise.measured.validate.table import read_table

    near = nearest_runs(case, policy, count)
    rows = read_table(MEASURED)
    predicted = predict([rows[each.row] for each in near])
    return [
        _row(each, rows[each.row].tokens_per_s_per_gpu, found.tokens_per_s_per_gpu)
        for each, found in zip(near, predicted, strict=True)
    ]


def _row(like: NearestRun, measured: float | None, predicted: float | None) -> MeasuredBeside:
    run = like.run
    return MeasuredBeside(
        run=f"{run.model} on {run.gpus:,} {run.gpu}", source=run.source, model=run.model, gpu=run.gpu, gpus=run.gpus,
        doublings=like.distance, unlike=like.unlike, measured_tokens_per_s_per_gpu=measured,
        predicted_tokens_per_s_per_gpu=predicted,
        measured_over_predicted=predicted / measured if measured and predicted else None,
    )  # fmt: skip


def evidence_table(rows: Sequence[MeasuredBeside]) -> Table:
    title = "most similar measured runs and their predictions"
    return table(title, rows, words=2, bars=("measured", "predicted"))
