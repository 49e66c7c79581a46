"""What a plan expects of the nodes it is to run on."""

from dataclasses import dataclass, field
from functools import cached_property

from shardwise.fabric.calls import PlacedMessage, calls_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.step import step_load
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring
from shardwise.programs.formats import Launch, settled
from shardwise.programs.formats._ranks import rank_groups
from shardwise.programs.formats._scripts import host_gpus, network_environment
from shardwise.question.studies.build import report_of
from shardwise.report.report import Report
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.policy import Policies, Policy
from shardwise.step.operate.assumed import checkpoint_bytes
from shardwise.work import work_of
from shardwise.work.case import Case

MOST_PRICED = 4096
"""GPUs of a job whose step is laid on its links here; `shardwise fabric` takes larger ones"""


@dataclass(frozen=True)
class PlannedTraining:
    """One policy of one case, checked to be legal."""

    case: Case
    policy: Policy

    @cached_property
    def report(self) -> Report:
        return report_of(self.case, self.policy)

    @cached_property
    def groups(self) -> dict[str, list[list[int]]]:
        """axis -> groups of ranks."""
        return rank_groups(Launch(self.case, settled(self.policy, self.case)))

    @cached_property
    def calls(self) -> list[PlacedMessage]:
        """Every collective of a step."""
        return calls_of(work_of(self.case, Policies.of([self.policy]), every_stage=True))

    @cached_property
    def checkpoint_bytes(self) -> float:
        return checkpoint_bytes(self.case.model, self.case.job)

    @cached_property
    def between_rails(self) -> float | None:
        """Of the bytes that leave their node in a step, the share between different rails; None: none leaves it, or the
        job is too large to look."""
        cluster = self.case.cluster
        if len(cluster.levels) < 2 or self.policy.gpus > MOST_PRICED:
            return None
        tree = tree_of(cluster, Wiring())
        load = step_load(Prices(tree, self.case.network, seats_of(self.policy, tree)), self.calls)
        out, across = (
            sum(each[kind] for each in load.crossings.values()) for kind in ("between nodes", "between rails")
        )
        return across / out if out else None


@dataclass(frozen=True)
class PlannedJob:
    """A cluster that is meant, and what is to be trained on it where that is stated."""

    cluster: Cluster
    training: PlannedTraining | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def gpu(self) -> Gpu:
        return self.cluster.gpu

    @property
    def host_gpus(self) -> int:
        return host_gpus(self.cluster)

    @property
    def hosts(self) -> int:
        return -(-self.cluster.gpus // self.host_gpus)

    @property
    def nvlink(self) -> bool:
        return self.cluster.levels[0].kind == "nvlink" and self.cluster.node_size > 1

    @property
    def networked(self) -> bool:
        return len(self.cluster.levels) > 1 and self.hosts > 1

    @property
    def host_bytes_per_s(self) -> float:
        """Out of one host over its network cards."""
        return self.cluster.levels[1].bandwidth * self.host_gpus if self.networked else 0.0

    @property
    def cards(self) -> int | None:
        """Of a host, where the fabric is described by rails."""
        return self.cluster.rails if self.networked and self.cluster.rails > 1 else None

    @property
    def environment(self) -> dict[str, str]:
        """As `export` writes it."""
        return network_environment(self.cluster)
