"""Sizes of one kind of cluster, each with its best policy, its time and its price."""

from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from shardwise.answers._budget import Budget, checked_rent
from shardwise.answers.plan import OverBudget
from shardwise.plan import Ranking, scan
from shardwise.question import Question
from shardwise.question.job import batches_near
from shardwise.question.studies.money import run_money
from shardwise.report import Report
from shardwise.report.report import Money
from shardwise.spec.arch.tuned import tuned
from shardwise.spec.cluster import Cluster
from shardwise.spec.sizes import Sizes
from shardwise.step.estimate.tuned_flops import product_flops


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


@dataclass(frozen=True)
class SizeQuestion:
    case: Question
    sizes: Sizes
    tokens: float
    """of the whole run"""
    limit: Budget
    rent: float | None
    most: int
    """GPUs"""

    @property
    def counts(self) -> list[int]:
        """Powers of two, inside a node too, then the largest number of whole nodes."""
        step, most = self.sizes.step, min(self.most, self.sizes.most)
        small = [2**i for i in range(step.bit_length() - 1)] if self.sizes.any_count else []
        counts = [gpus for gpus in small if gpus <= most] + self.sizes.doubling(1, most)
        named = self.sizes.named
        whole = named.gpus if named is not None and named.gpus <= most else most // step * step
        if not counts:
            raise ValueError(f"max-gpus: {most} is less than a node; write {step} or more")
        return sorted({*counts, *([whole] if whole else [])})

    @property
    def least(self) -> int:
        """GPUs that a deadline asks for at the peak rate, whatever the policy."""
        if self.limit.seconds is None or self.limit.usd is not None:
            return 1
        gpu = self.sizes.at(self.counts[0]).gpu
        trained = tuned(self.case.model, self.case.job.tuning)
        work = product_flops(trained, 0) * self.tokens
        return int(work / (gpu.peak(self.case.job.precision.compute) * self.limit.seconds)) + 1

    def at(self, gpus: int) -> SizePoint:
        """With the batch as stated, or near it where that is faster."""
        found = [self._with(batch, gpus) for batch in batches_near(self.case.job.global_batch, gpus)]
        return max(found, key=lambda point: point.report.tokens_per_s_per_gpu if point.report else 0.0)

    def may_be_in_time(self, gpus: int) -> bool:
        """Whether any policy is; a short scan where none is."""
        if self.limit.seconds is None:
            return True
        return any(self._fast_enough(batch, gpus) for batch in batches_near(self.case.job.global_batch, gpus))

    def _fast_enough(self, batch: int, gpus: int) -> bool:
        assert self.limit.seconds is not None
        case = replace(self.case, job=with_fields(self.case.job, global_batch=batch))
        step_s = self.limit.seconds * case.job.step_tokens / self.tokens
        found = scan(
            case.on(self.sizes.at(gpus)), top=1, losers=False, at_most_s=step_s, **case.bounds,
        )  # fmt: skip
        if not found.finished:
            raise KeyboardInterrupt
        return bool(found.best)

    def _with(self, batch: int, gpus: int) -> SizePoint:
        case = replace(self.case, job=with_fields(self.case.job, global_batch=batch))
        return point_at(case, self.sizes, gpus, self.tokens, self.limit, self.rent)
