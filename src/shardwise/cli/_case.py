"""Model, job, stack and profile as the flags state them: what several verbs try on many clusters and policies."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import structs

from shardwise.arch import model_of
from shardwise.calibrate.profile import Profile
from shardwise.case import Case, case_of
from shardwise.cli._groups import POLICY
from shardwise.cli._host import HostMemory, host_bytes_of, host_refusal
from shardwise.cli._job import (
    Dispatcher,
    GlobalBatch,
    Imbalance,
    OptimizerName,
    Seq,
    UsualPrecision,
    UsualStack,
    job_of,
    precision_asked,
    software_of,
)
from shardwise.cli._lengths import NO_LENGTHS, DataFlags, lengths_choice
from shardwise.cli._options import ProfileFile, profile_or_none
from shardwise.cli._tuning import Freeze, Tune, with_tuning
from shardwise.estimate.synced import SyncChoice
from shardwise.plan import Candidate, Limits, Ranking, scan
from shardwise.plan.choice import RISK, check_risk
from shardwise.plan.constraints import Constraint
from shardwise.plan.exhaustive import HEADROOM
from shardwise.report import Report
from shardwise.software import Stack
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.lengths import LengthsChoice
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy

ModelName = Annotated[str, Parameter(help="A catalog name, a Hugging Face id, or a path to a config.json.")]
Fixed = Annotated[
    list[str] | None,
    Parameter(
        name=("--fix", "--bound"), negative=(), group=POLICY, help="Only such policies: tp=8, 'pp<=8'; may repeat."
    ),
]
Headroom = Annotated[float, Parameter(group=POLICY, help="Share of a GPU's memory a policy may fill.")]
Risk = Annotated[
    float, Parameter(group=POLICY, help="Largest chance to run out of memory that you accept: 0.1 is one run in ten.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SharedFlags:
    seq: Seq = None
    global_batch: GlobalBatch = None
    optimizer: OptimizerName = "adamw"
    stack: UsualStack = None
    imbalance: Imbalance = None
    dispatcher: Dispatcher = None
    tune: Tune = None
    freeze: Freeze = None
    headroom: Headroom = HEADROOM
    risk: Risk = RISK
    profile: ProfileFile = None
    host_memory: HostMemory = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobFlags(SharedFlags):
    precision: UsualPrecision = None


@dataclass(frozen=True)
class OpenCase:
    """A case whose cluster is still open, and what a plan of it may look at."""

    model: Model
    job: Job
    stack: Stack
    profile: Profile | None = None
    headroom: float = HEADROOM
    risk: float = RISK
    only: tuple[Constraint, ...] = ()
    limits: Limits | None = None
    sync: SyncChoice | None = None
    """in place of the mean gradient"""
    host_bytes: float | None = None
    """of a node's host, for what is offloaded; None: as much as is asked for"""
    lengths: LengthsChoice | None = None
    """of the data; None: all as long as the job's"""

    def on(self, cluster: Cluster) -> Case:
        return case_of(self.model, cluster, self.job, self.stack, self.profile)

    def ranked(self, cluster: Cluster, *, top: int = 1) -> Ranking:
        """Whole: the best of what an interrupted scan had seen is no answer to what is asked with this."""
        given: dict[str, Any] = {"top": top, "headroom": self.headroom, "risk": self.risk, "limits": self.limits,
                                 "only": self.only, "sync": self.sync, "host_memory": self.host_bytes}  # fmt: skip
        if self.lengths is not None:
            from shardwise.plan.by_lengths import scan_by_lengths  # most answers are of full sequences

            return _whole(scan_by_lengths(self.on(cluster), self.lengths, **given))
        return _whole(scan(self.on(cluster), losers=False, **given))

    def frontier(self, cluster: Cluster) -> tuple[Candidate, ...]:
        """What nothing beats in step time and memory, among policies with ZeRO over all ranks and recompute of all
        layers or none: the rest lies between them."""
        return _whole(scan(
            self.on(cluster), headroom=self.headroom, risk=1.0, only=self.only, losers=False, frontier=True,
            host_memory=self.host_bytes,
            limits=structs.replace(self.limits or Limits(), some_layers=False, shard_groups=False),
        )).frontier  # fmt: skip

    def report(self, cluster: Cluster, policy: Policy, *, traffic: bool = True) -> Report:
        from shardwise.studies.build import report_of  # with all it needs; a ranking has no use for it

        return report_of(self.on(cluster), policy, traffic=traffic)

    def verdict(self, cluster: Cluster, report: Report) -> str:
        """The report's, or what the host's memory lacks."""
        over = host_refusal(report.host_bytes * cluster.node_size, self.host_bytes)
        return over if over and report.fits else report.verdict


def _whole(ranked: Ranking) -> Ranking:
    if not ranked.finished:
        raise KeyboardInterrupt
    return ranked


def open_case_of(
    model: str, flags: SharedFlags, *, gpus: int, tokens: str | None = None, only: tuple[Constraint, ...] = (),
    data: DataFlags = NO_LENGTHS,
) -> tuple[OpenCase, list[str]]:  # fmt: skip
    """The case, and one note for each thing that was assumed."""
    shape = model_of(model)
    stack = software_of(flags.stack, flags.imbalance, shape, flags.dispatcher)
    precision = precision_asked(flags.precision if isinstance(flags, JobFlags) else None, shape, stack)
    job, notes = job_of(shape, flags.seq, flags.global_batch, precision, flags.optimizer, tokens, gpus=gpus)
    job = with_tuning(job, shape, flags.tune, flags.freeze)
    if not 0 < flags.headroom <= 1:
        raise ValueError(
            f"headroom: {flags.headroom:g} is out of range; write a share of the memory above 0 and at most 1"
        )
    check_risk(flags.risk)
    case = OpenCase(
        shape, job, stack, profile_or_none(flags.profile), flags.headroom, flags.risk, only,
        host_bytes=host_bytes_of(flags.host_memory), lengths=lengths_choice(shape, data),
    )  # fmt: skip
    return case, notes
