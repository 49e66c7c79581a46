"""`plan --pareto`: what nothing beats in step time, memory, cost and number of GPUs, over cluster sizes."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Table, shown, table
from shardwise.plan import Candidate
from shardwise.plan.pareto import undominated
from shardwise.question import Question
from shardwise.question.studies.money import BILLION, money_of, run_money
from shardwise.report.report import Money
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy

LEAST_SAVED = 0.25
"""share of memory a further point of one size has to save to be on the page (JSON has them all)"""
MOST_SLOWER = 2.0
"""times the step of the size's fastest, on the page"""
DAY = 86400.0


class FrontierRow(Struct, frozen=True, kw_only=True):
    gpus: Annotated[int, shown("GPUs", "thousands")]
    cluster: str
    policy: Annotated[Policy, shown("policy", "policy")]
    step_s: Annotated[float, shown("step s", "s")]
    peak_bytes: Annotated[float, shown("GiB", "GiB")]
    tokens_per_s_per_gpu: float
    billion_tokens: Annotated[Money, shown("USD/Gtok", "rent")]
    days: Annotated[float | None, shown("days")]
    run: Annotated[Money | None, shown("USD", "rent")]

    @property
    def sizes(self) -> tuple[float, float, float, float]:
        """time, memory, cost (GPU seconds of a step) and GPUs: smaller is better"""
        return self.step_s, self.peak_bytes, self.step_s * self.gpus, float(self.gpus)


def frontier_rows(question: Question, cluster: Cluster) -> list[FrontierRow]:
    """Of one size."""
    return [_row(question, cluster, found) for found in question.frontier(cluster)]


def _row(question: Question, cluster: Cluster, found: Candidate) -> FrontierRow:
    rate, tokens = found.tokens_per_s_per_gpu * cluster.gpus, question.job.tokens
    run = run_money(question.on(cluster), found.step_s, tokens, rate) if tokens else None
    return FrontierRow(
        gpus=cluster.gpus, cluster=cluster.name, policy=found.policy, step_s=found.step_s, peak_bytes=found.peak_bytes,
        tokens_per_s_per_gpu=found.tokens_per_s_per_gpu, billion_tokens=money_of(cluster, BILLION, rate),
        days=None if run is None else run.seconds / DAY, run=run,
    )  # fmt: skip


def unbeaten(rows: Sequence[FrontierRow]) -> list[FrontierRow]:
    """Over all sizes."""
    return [rows[i] for i in undominated([row.sizes for row in rows])] if rows else []


def frontier_table(rows: Sequence[FrontierRow]) -> Table:
    without = ("billion_tokens",) if any(row.run for row in rows) else ()
    title = "unbeaten in time, memory, cost and GPUs at once"
    return table(title, _thinned(rows), row=FrontierRow, words=2, breaks=1, sparse=True, without=without)


def _thinned(rows: Sequence[FrontierRow]) -> list[FrontierRow]:
    """Of each size: the fastest, then each that saves enough memory against the one kept before."""
    kept: list[FrontierRow] = []
    for row in rows:
        fastest = next((each for each in kept if each.gpus == row.gpus), None)
        if fastest is None or (
            row.peak_bytes <= (1 - LEAST_SAVED) * kept[-1].peak_bytes and row.step_s <= MOST_SLOWER * fastest.step_s
        ):
            kept.append(row)
    return kept
