"""`estimate --evidence N`: the measured runs most like a policy, each beside what is predicted for it."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.case import Case
from shardwise.cli._groups import OUTPUT
from shardwise.cli._options import within
from shardwise.cli._output import print_table
from shardwise.plan.nearest import MEASURED, NearestRun, nearest_runs
from shardwise.spec.policy import Policy

MOST = 50
Evidence = Annotated[
    int,
    Parameter(
        group=OUTPUT, help="Show this many of the most similar measured runs, each with its prediction; 0: none."
    ),
    within(0, MOST),
]


@dataclass(frozen=True)
class RunBesidePrediction:
    like: NearestRun
    measured: float | None
    """tokens per second and GPU"""
    predicted: float | None
    """of that run, by the program it used; None where it is not supported"""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted step: above 1 the run was slower."""
        return self.predicted / self.measured if self.measured and self.predicted else None


def evidence_of(case: Case, policy: Policy, count: int) -> list[RunBesidePrediction]:
    """The nearest first; none are looked up where none are asked for."""
    if not count:
        return []
    from shardwise.validate.predict import predict  # most answers show no other runs
    from shardwise.validate.table import read_table

    near = nearest_runs(case, policy, count)
    rows = read_table(MEASURED)
    predicted = predict([rows[each.row] for each in near])
    return [
        RunBesidePrediction(each, rows[each.row].tokens_per_s_per_gpu, found.tokens_per_s_per_gpu)
        for each, found in zip(near, predicted, strict=True)
    ]


def evidence_data(found: list[RunBesidePrediction]) -> list[dict[str, Any]]:
    return [
        {"source": each.like.run.source, "model": each.like.run.model, "gpu": each.like.run.gpu,
         "gpus": each.like.run.gpus, "doublings": each.like.distance, "unlike": each.like.unlike,
         "measured_tokens_per_s_per_gpu": each.measured, "predicted_tokens_per_s_per_gpu": each.predicted,
         "measured_over_predicted": each.ratio}
        for each in found
    ]  # fmt: skip


def print_evidence(found: list[RunBesidePrediction]) -> None:
    if not found:
        return
    print()
    print_table(
        "most similar measured runs and their predictions",
        ["run", "source", "away", "measured", "predicted", "step over predicted"],
        [(f"{each.like.run.model} on {each.like.run.gpus:,} {each.like.run.gpu}", each.like.run.source,
          each.like.distance, each.measured, each.predicted, each.ratio) for each in found],
        words=2, bars=("measured", "predicted"),
    )  # fmt: skip
