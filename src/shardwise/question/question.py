"""A question: what is trained, by which program, on which cluster, and one policy or all that bounds leave."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardwise.cost.calibrate.profile import Profile
from shardwise.plan import Candidate, Limits, Ranking, scan
from shardwise.plan.choice import RISK
from shardwise.plan.constraints import Constraint
from shardwise.plan.exhaustive import HEADROOM
from shardwise.spec.cluster import STATED as STATED_HOST
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.lengths import LengthsChoice
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.software import Stack
from shardwise.step.estimate.synced import SyncChoice
from shardwise.units import gib
from shardwise.work.case import Case, case_of

if TYPE_CHECKING:
    from shardwise.report import Report

Progress = Callable[[int, int], None]
STATED, RECOMMENDED, SMALLEST, ASSUMED = "stated", "recommended", "smallest", "assumed"
"""where the policy of a question is from; `smallest`: nothing fits, and it needs the least memory; `assumed`: of a run
that was, of which nobody said it"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Asked of every policy inside the bounds."""

    model: Model
    """as stated; `case.model` is as the program trains it"""
    cluster: Cluster
    job: Job
    stack: Stack
    """as the catalog has it, or with settings changed on request; `case.stack` is as it runs"""
    profile: Profile | None = None
    headroom: float = HEADROOM
    risk: float = RISK
    only: tuple[Constraint, ...] = ()
    limits: Limits | None = None
    sync: SyncChoice | None = None
    """in place of the mean gradient"""
    host_bytes: float | None = None
    """of a node's host, for what is offloaded; None: what the cluster's has"""
    lengths: LengthsChoice | None = None
    """of the data; None: all as long as the job's"""
    notes: tuple[str, ...] = ()
    """one for each thing that was assumed"""

    @cached_property
    def case(self) -> Case:
        return self.on(self.cluster)

    def on(self, cluster: Cluster) -> Case:
        """The same training on another cluster."""
        if self.host_bytes is not None:
            cluster = cluster.with_host_memory(self.host_bytes)
        return case_of(self.model, cluster, self.job, self.stack, self.profile)

    @property
    def bounds(self) -> dict[str, Any]:
        """Of a search, as `scan` takes them."""
        return {"headroom": self.headroom, "risk": self.risk, "limits": self.limits, "only": self.only}

    def ranked(self, cluster: Cluster | None = None, *, top: int = 1, progress: Progress | None = None) -> Ranking:
        """The best policies, of a scan that was not interrupted: the best of the part it had seen answers nothing."""
        case = self.case if cluster is None else self.on(cluster)
        given = {"top": top, "sync": self.sync, **self.bounds}
        if self.lengths is not None:
            from shardwise.plan.by_lengths import scan_by_lengths  # most answers are of full sequences

            return _whole(scan_by_lengths(case, self.lengths, told=progress, **given))
        return _whole(scan(case, losers=False, progress=progress, **given))

    def frontier(self, cluster: Cluster) -> tuple[Candidate, ...]:
        """What nothing beats in step time and memory, among policies with ZeRO over all ranks and recompute of all
        layers or none: the rest lies between them."""
        limits = replace(self.limits or Limits(), some_layers=False, shard_groups=False)
        given = self.bounds | {"risk": 1.0, "limits": limits}
        return _whole(scan(self.on(cluster), losers=False, frontier=True, **given)).frontier

    def report(self, cluster: Cluster, policy: Policy, *, traffic: bool = True) -> "Report":
        from shardwise.question.studies.build import report_of  # with all it needs; a ranking has no use for it

        return report_of(self.on(cluster), policy, traffic=traffic)

    def verdict(self, cluster: Cluster, report: "Report") -> str:
        """The report's, or what the host's memory lacks."""
        over = host_refusal(self.on(cluster).cluster, report.host_bytes)
        return over if over and report.fits else report.verdict


@dataclass(frozen=True, kw_only=True)
class PolicyQuestion(Question):
    """Asked of one policy."""

    policy: Policy
    origin: str = STATED
    """STATED, RECOMMENDED, SMALLEST or ASSUMED"""


def host_refusal(cluster: Cluster, needed: float) -> str:
    """Empty: the host holds the bytes that each of its GPUs offloads."""
    if needed <= cluster.host_bytes_per_gpu:
        return ""
    node = cluster.node_size
    return f"each node offloads {gib(needed * node)} GiB to its host, which has {host_text(cluster)}"


def host_text(cluster: Cluster) -> str:
    """'1,863 GiB (NVIDIA DGX H100 data sheet; --host-memory)': of the GPUs of a node."""
    source = "assumed" if cluster.host is None else cluster.host.source.partition(":")[0] or "stated"
    flag = source if source == STATED_HOST else f"{source}; {STATED_HOST}"
    return f"{gib(cluster.host_bytes_per_gpu * cluster.node_size)} GiB ({flag})"


def _whole(ranked: Ranking) -> Ranking:
    if not ranked.finished:
        raise KeyboardInterrupt
    return ranked
