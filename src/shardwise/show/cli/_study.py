"""A study: one model on one kind of cluster under one policy, along one axis."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.plugins.engines import Engine, Setup
from shardwise.question import Question
from shardwise.question.words import SEARCHED, check_policy
from shardwise.report import Report
from shardwise.report.terminal import policy_code
from shardwise.show.cli._axes import Place, SweepAxis, place_of
from shardwise.show.cli._flags import JobFlags, asked_of_sizes, on_of
from shardwise.show.cli._knee import Knee, Points, knee_of
from shardwise.show.cli._shards import KneeAnswer, KneeShard, PointAnswer, PointShard, answered
from shardwise.show.cli._that_fit import that_fit_data
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.sizes import sizes_of
from shardwise.step.estimate.lengths import DataStep
from shardwise.step.estimate.synced import choices_of
from shardwise.step.estimate.synced.convergence import DENSE


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

    @property
    def records(self) -> list[dict[str, Any]]:
        axis = self.study.axis.name
        found = [_record(axis, p, r) for p, r in zip(self.points, self.relative, strict=True)]
        if not self.study.strategy:
            return found
        return [
            record | {"sync": self.study.strategy, "to_loss_s": point.to_loss_s}
            for record, point in zip(found, self.points, strict=True)
        ]

    @property
    def data(self) -> dict[str, Any]:
        policies = [None if p.policy is None else msgspec.to_builtins(p.policy) for p in self.points]
        case = self.study.case
        return {
            "model": case.model.name, "on": self.study.on, "asked": self.study.asked, "stack": case.stack.name,
            "over": self.study.axis.name, "sync": self.study.strategy or None,
            "points": [record | {"policy": policy} for record, policy in zip(self.records, policies, strict=True)],
            "knee": None if self.knee is None else msgspec.to_builtins(self.knee),
            "that_fit": [] if self.full is None or self.full.report is None
            else that_fit_data(self.nearest, self.full.report.step_s),
        }  # fmt: skip


def study_of(
    model: str, on: str, asked: str, axis: SweepAxis, flags: JobFlags, *, weak: bool
) -> list[SweepStudy]:  # fmt: skip
    """One, or one for each strategy of data parallelism that `flags.sync` names."""
    check_policy(asked)
    on, sync = on_of(flags, on), flags.sync
    case = asked_of_sizes(model, sizes_of(on), flags, _gpus(axis, on, weak=weak))
    choices = [None] if sync is None else choices_of(sync, case.job.optimizer.name)
    return [
        _study(replace(case, sync=choice), list(case.notes), on, asked, axis, weak=weak,
               strategy="" if sync is None else DENSE if choice is None else choice.text)
        for choice in choices
    ]  # fmt: skip


def _study(
    case: Question, notes: list[str], on: str, asked: str, axis: SweepAxis, *, weak: bool, strategy: str
) -> SweepStudy:
    searched = asked.split(",")[0].strip().lower() in SEARCHED
    place = place_of(axis, case, on, weak=weak, searched=searched)
    return SweepStudy(on, asked, axis, case, place, [] if axis.name == "seq" else notes, strategy)


def _gpus(axis: SweepAxis, on: str, *, weak: bool) -> int:
    """For which the usual batch is meant: the most of the sweep, or the first where the batch grows with them."""
    return int(axis.values[0] if weak else max(axis.values)) if axis.name == "gpus" else cluster_of(on).gpus


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


def _record(axis: str, point: SweepPoint, against: float | None) -> dict[str, Any]:
    report, job = point.report, point.shard.case.job
    return {
        **({"network_bytes_per_s": point.value} if axis == "network" else {axis: round(point.value)}),
        "gpus": point.shard.cluster.gpus, "seq_tokens": job.seq, "global_sequences": job.global_batch,
        "policy_code": None if point.policy is None else policy_code(point.policy),
        "fits": point.runs, "verdict": point.verdict,
        "step_s": None if report is None else report.step_s,
        "mfu_causal_half": None if report is None else report.mfu_causal_half,
        "mfu_full_square": None if report is None else report.mfu_full_square,
        "tokens_per_s_per_gpu": None if report is None else report.tokens_per_s_per_gpu,
        "peak_bytes": None if report is None else report.peak_bytes,
        "throughput_per_gpu_vs_first": against,
        **({} if point.shard.case.lengths is None else _data_record(point)),
    }  # fmt: skip


def _data_record(point: SweepPoint) -> dict[str, Any]:
    data = point.data
    return {
        "data_step_s": None if data is None else data.step_s,
        "data_tokens_per_s_per_gpu": None if data is None else point.tokens_per_s_per_gpu,
        "waiting": None if data is None else data.waiting,
        "data_share": None if data is None else data.data,
    }
