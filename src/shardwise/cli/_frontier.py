"""`plan --pareto`: what nothing beats in step time, memory, cost and number of GPUs, over cluster sizes."""

from dataclasses import dataclass
from typing import Any

import msgspec

from shardwise.cli._output import Cell, print_gap, print_table
from shardwise.cli._points import counts_of
from shardwise.cli._progress import answers, left_out
from shardwise.plan import Candidate
from shardwise.plan.pareto import undominated
from shardwise.question import Question
from shardwise.report.report import Money
from shardwise.report.terminal import days_text, policy_code, usd_text
from shardwise.spec.cluster import Cluster
from shardwise.spec.sizes import Sizes
from shardwise.studies.money import BILLION, money_of, run_money
from shardwise.units import gib

LEAST_SAVED = 0.25
"""share of memory a further point of one size has to save to be on the page (JSON has them all)"""
MOST_SLOWER = 2.0
"""times the step of the size's fastest, on the page"""


@dataclass(frozen=True)
class Corner:
    cluster: Cluster
    found: Candidate

    def money(self, tokens: float) -> Money:
        """Without failures."""
        return money_of(self.cluster, tokens, self.found.tokens_per_s_per_gpu * self.cluster.gpus)

    def run_money(self, case: Question) -> Money:
        rate = self.found.tokens_per_s_per_gpu * self.cluster.gpus
        return run_money(case.on(self.cluster), self.found.step_s, case.job.tokens, rate)

    @property
    def row(self) -> tuple[float, float, float, float]:
        """time, memory, cost (GPU seconds of a step) and GPUs: smaller is better"""
        gpus = self.cluster.gpus
        return self.found.step_s, self.found.peak_bytes, self.found.step_s * gpus, float(gpus)


def frontier_of(case: Question, sizes: Sizes, most: int) -> tuple[list[Corner], list[str]]:
    """And a note where Ctrl-C left sizes out."""

    def at(gpus: int) -> list[Corner]:
        cluster = sizes.at(gpus)
        return [Corner(cluster, found) for found in case.frontier(cluster)]

    counts = counts_of(sizes, most)
    found = answers(counts, "cluster sizes", at)
    corners = [corner for each in found for corner in each]
    kept = [corners[i] for i in undominated([corner.row for corner in corners])] if corners else []
    return kept, left_out(found, counts, "cluster sizes")


def _thinned(corners: list[Corner]) -> list[Corner]:
    """Of each size: the fastest, then each that saves enough memory against the one kept before."""
    kept: list[Corner] = []
    for corner in corners:
        fastest = next((c for c in kept if c.cluster.gpus == corner.cluster.gpus), None)
        if fastest is None or (
            corner.found.peak_bytes <= (1 - LEAST_SAVED) * kept[-1].found.peak_bytes
            and corner.found.step_s <= MOST_SLOWER * fastest.found.step_s
        ):
            kept.append(corner)
    return kept


def frontier_data(case: Question, corners: list[Corner]) -> list[dict[str, Any]]:
    return [
        {
            "gpus": corner.cluster.gpus, "cluster": corner.cluster.name,
            "policy": msgspec.to_builtins(corner.found.policy), "step_s": corner.found.step_s,
            "peak_bytes": corner.found.peak_bytes,
            "tokens_per_s_per_gpu": corner.found.tokens_per_s_per_gpu,
            "billion_tokens": msgspec.to_builtins(corner.money(BILLION)),
            "run": msgspec.to_builtins(corner.run_money(case)) if case.job.tokens else None,
        }
        for corner in corners
    ]  # fmt: skip


def show_frontier(case: Question, corners: list[Corner]) -> None:
    tokens = case.job.tokens
    heads = ["GPUs", "policy", "step s", "GiB", *(["days", "USD"] if tokens else ["USD/Gtok"])]

    def cells(corner: Corner) -> list[Cell]:
        money = corner.run_money(case) if tokens else corner.money(BILLION)
        row: list[Cell] = [f"{corner.cluster.gpus:,}", policy_code(corner.found.policy), f"{corner.found.step_s:.4g}",
                           gib(corner.found.peak_bytes)]  # fmt: skip
        return [*row, *([days_text(money.seconds)] if tokens else []), usd_text(money)]

    print_gap()
    print_table(
        "unbeaten in time, memory, cost and GPUs at once",
        heads,
        map(cells, _thinned(corners)),
        words=2,
        breaks=1,
    )
