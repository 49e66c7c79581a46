"""A study: one model on one kind of cluster under one policy, along one axis."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from shardwise.answers._sweep_axes import Place, SweepAxis
from shardwise.answers._sweep_knee import Knee, Points, knee_of
from shardwise.answers._sweep_shards import KneeAnswer, KneeShard, PointAnswer, PointShard, answered
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.plugins.engines import Engine, Setup
from shardwise.question import Question
from shardwise.report import Report
from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths import DataStep


@dataclass(frozen=True)
class SweepStudy:
    on: str
    asked: str
    axis: SweepAxis
    case: Question
    place: Place
    notes: list[str]
    strategy: str = ""
    """of data parallelism, where strategies were asked for"""

    @property
    def title(self) -> str:
        how = "best policy at each point" if self.asked == "best" else self.asked
        return f"{self.case.model.name} on {self.on}, {how}" + (f", {self.strategy}" if self.strategy else "")

    def shard(self, value: float) -> PointShard:
        micro = f",micro={round(value)}" if self.axis.name == "micro" else ""
        return PointShard(*self.place(value), self.asked + micro)


@dataclass(frozen=True)
class SweepPoint:
    value: float
    shard: PointShard
    solved: PointAnswer

    @property
    def report(self) -> Report | None:
        return self.solved.report

    @property
    def policy(self) -> Policy | None:
        return self.solved.policy

    @property
    def verdict(self) -> str:
        return self.solved.verdict

    @property
    def data(self) -> DataStep | None:
        return self.solved.data

    @property
    def step_s(self) -> float | None:
        return self.solved.step_s

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """Of the data, where its lengths are known."""
        if self.data is not None:
            return self.data.tokens / self.data.step_s / self.shard.cluster.gpus
        return None if self.report is None else self.report.tokens_per_s_per_gpu

    @property
    def to_loss_s(self) -> float | None:
        """The step, stretched by the steps that a strategy takes more to the same loss; None: nobody knows."""
        if self.report is None:
            return None
        return self.report.step_s if self.report.sync is None else self.report.sync.to_loss_s

    @property
    def runs(self) -> bool:
        return self.solved.runs


@dataclass(frozen=True)
class SweepResult:
    study: SweepStudy
    points: list[SweepPoint]
    knee: Knee | None

    @cached_property
    def full(self) -> SweepPoint | None:
        """The first point whose policy does not fit."""
        return next((p for p in self.points if p.report is not None and not p.report.fits), None)

    @cached_property
    def nearest(self) -> list[PolicyThatFits]:
        """Policies that fit there."""
        if self.full is None or self.full.policy is None:
            return []
        return policies_that_fit(self.full.shard.case.on(self.full.shard.cluster), self.full.policy)

    @property
    def relative(self) -> list[float | None]:
        """Throughput per GPU over that of the first point that runs."""
        rates = [p.tokens_per_s_per_gpu for p in self.points]
        first = next((rate for rate, p in zip(rates, self.points, strict=True) if rate is not None and p.runs), None)
        return [rate / first if rate is not None and first else None for rate in rates]


def swept(
    studies: list[SweepStudy], engine: Engine, setup: Setup, progress: Callable[[int, int], None] | None = None
) -> tuple[list[SweepResult], int]:
    """Every study with the points that were done, and how many were not (Ctrl-C)."""
    wanted = [(study, value, study.shard(value)) for study in studies for value in study.axis.values]
    found = answered([shard for _, _, shard in wanted], engine, setup, progress)
    points: dict[int, list[SweepPoint]] = {id(study): [] for study in studies}
    for (study, value, shard), answer in zip(wanted, found, strict=True):
        if isinstance(answer, PointAnswer):
            points[id(study)].append(SweepPoint(value, shard, answer))
    missing = found.count(None)
    knees = [None] * len(studies) if missing else _knees(studies, [points[id(s)] for s in studies], engine, setup)
    return [SweepResult(s, points[id(s)], knee) for s, knee in zip(studies, knees, strict=True)], missing


def _knees(
    studies: list[SweepStudy], points: list[list[SweepPoint]], engine: Engine, setup: Setup
) -> list[Knee | None]:
    """Those of the network take a search each, and run as shards; the others are read off the points."""
    ran = [_measured(part) for part in points]
    if studies[0].axis.name != "network":
        return [knee_of(study.axis, part, lambda _: None) for study, part in zip(studies, ran, strict=True)]
    shards = [
        KneeShard(study.axis, part[0].shard.case, part[0].shard.cluster, study.asked, seen)
        for study, part, seen in zip(studies, points, ran, strict=True)
    ]
    return [answer.knee if isinstance(answer, KneeAnswer) else None for answer in answered(shards, engine, setup)]


def _measured(points: list[SweepPoint]) -> Points:
    return [
        (p.value, p.step_s, p.tokens_per_s_per_gpu)
        for p in points
        if p.step_s is not None and p.tokens_per_s_per_gpu is not None and p.runs
    ]
