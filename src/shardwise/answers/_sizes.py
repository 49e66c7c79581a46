"""Sizes of one kind of cluster, each with its best policy, its time and its price."""

from dataclasses import dataclass
from typing import Any

import msgspec

from shardwise.answers._budget import Budget, checked_rent
from shardwise.answers.plan import OverBudget
from shardwise.plan import Ranking
from shardwise.question import Question
from shardwise.question.studies.money import run_money
from shardwise.report import Report
from shardwise.report.report import Money
from shardwise.spec.cluster import Cluster
from shardwise.spec.sizes import Sizes


@dataclass(frozen=True)
class SizePoint:
    """One size of cluster and its best policy."""

    cluster: Cluster
    name: str
    ranked: Ranking
    report: Report | None
    run: Money | None
    misses: list[str]

    @property
    def meets(self) -> bool:
        return self.report is not None and not self.misses


def most_gpus(sizes: Sizes, max_gpus: int) -> int:
    return min(max_gpus, sizes.named.gpus if sizes.named is not None else max_gpus)


def counts_of(sizes: Sizes, max_gpus: int) -> list[int]:
    most = most_gpus(sizes, max_gpus)
    counts = sizes.doubling(1, most)
    if sizes.named is not None and sizes.named.gpus <= max_gpus and sizes.named.gpus not in counts:
        counts.append(sizes.named.gpus)
    if not counts:
        raise ValueError(f"max-gpus: {most} is less than a node; write {sizes.step} or more")
    return counts


def point_at(case: Question, sizes: Sizes, gpus: int, tokens: float, limit: Budget, rent: float | None) -> SizePoint:
    cluster = sizes.at(gpus)
    ranked = case.ranked(cluster)
    if ranked.recommended is None:
        return SizePoint(cluster, sizes.name_at(gpus), ranked, None, None, [])
    report = case.report(cluster, ranked.recommended.policy, traffic=False)
    run = run_money(
        case.on(cluster), report.step_s, tokens, report.tokens_per_s_per_gpu * cluster.gpus, checked_rent(rent)
    )
    return SizePoint(cluster, sizes.name_at(gpus), ranked, report, run, limit.misses(cluster, run))


def over_budget(point: SizePoint) -> OverBudget:
    report, run = point.report, point.run
    return OverBudget(
        gpus=point.cluster.gpus, cluster=point.cluster.name, fits=report is not None,
        policy=report.policy if report else None, step_s=report.step_s if report else None,
        seconds=run.seconds if run else None, usd=run.usd if run else None,
        misses=point.misses if report is not None else ["memory"],
    )  # fmt: skip


def point_data(point: SizePoint) -> dict[str, Any]:
    report, run = point.report, point.run
    return {
        "gpus": point.cluster.gpus, "cluster": point.cluster.name, "fits": report is not None,
        "policy": None if report is None else msgspec.to_builtins(report.policy),
        "step_s": None if report is None else report.step_s,
        "mfu_causal_half": None if report is None else report.mfu_causal_half,
        "mfu_full_square": None if report is None else report.mfu_full_square,
        "tokens_per_s_per_gpu": None if report is None else report.tokens_per_s_per_gpu,
        "peak_bytes": None if report is None else report.peak_bytes,
        "global_sequences": None if report is None else report.global_sequences,
        "seconds": None if run is None else run.seconds, "energy_j": None if run is None else run.energy_j,
        "electricity_usd": None if run is None else run.electricity_usd,
        "usd": None if run is None else run.usd,
        "meets": point.meets, "misses": point.misses if report is not None else ["memory"],
    }  # fmt: skip
