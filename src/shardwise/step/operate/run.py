"""A run of so many useful seconds on a cluster: how long it takes with failures, and what would help."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from msgspec import structs

from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.step.operate.assumed import (
    KINDS,
    Conditions,
    checkpoint_bytes,
    levels_of,
    loaded_bytes,
    nodes_of,
    read_rate,
    restart_of,
    saves_of,
    write_rate,
)
from shardwise.step.operate.elastic import replica_share, shrunk_share
from shardwise.step.operate.failures import FailureRates
from shardwise.step.operate.goodput import Goodput, Restart, Saves, goodput_of, two_levels
from shardwise.step.operate.published import published_times
from shardwise.step.operate.sampled import SampledRuns, Sampling, sample
from shardwise.step.operate.spares import pool

PAUSE_S = 30.0
"""of the replicas that go on while one leaves or joins; an assumption"""
HOUR_S = 3600.0
MOST_FAILURES = 20_000


@dataclass(frozen=True)
class Operation:
    """What is run, and how it is kept running."""

    model: Model
    job: Job
    cluster: Cluster
    step_s: float
    work_s: float
    """with nothing ever failing"""
    rates: FailureRates
    kind: str = "async"
    conditions: Conditions = field(default_factory=Conditions)
    interval_s: float | None = None
    replicas: int = 1
    """whole copies of the state over data parallelism, which can go on without each other"""

    @property
    def saved_bytes(self) -> float:
        return checkpoint_bytes(self.model, self.job)

    @property
    def between_s(self) -> float:
        return self.rates.mean_between_s(self.cluster.gpus)

    @property
    def saves(self) -> Saves:
        return saves_of(self.kind, self.cluster, self.saved_bytes, self.conditions)

    @property
    def restart(self) -> Restart:
        return structs.replace(self.from_storage, load_s=0.0) if self.kind == "memory" else self.from_storage

    @property
    def from_storage(self) -> Restart:
        read = loaded_bytes(self.model, self.job)
        return restart_of(self.rates, self.cluster, read, self.step_s, self.conditions)

    def goodput(self) -> Goodput:
        if self.kind != "memory" or not self.rates.per_gpu:
            return goodput_of(self.saves, self.restart, self.between_s, self.interval_s, self.rates.planned)
        levels = levels_of(self.from_storage, self.cluster, self.saved_bytes, self.conditions)
        return two_levels(levels, self.between_s, self.rates.planned)[0]

    @property
    def seconds(self) -> float:
        return self.work_s / self.goodput().share

    @property
    def repair_s(self) -> float:
        asked = self.conditions.repair_s
        return published_times().nodes.repair_s if asked is None else asked

    @property
    def nodes_away(self) -> float:
        """On average, with every node that fails away for its repair."""
        return self.rates.per_gpu * self.cluster.gpus * self.rates.takes_node * self.repair_s

    def spares_needed(self) -> int:
        """So that in 99 of 100 moments a node is at hand."""
        return pool(self.nodes_away) if self.nodes_away > 0 else 0

    def sampled(self, how: Sampling) -> SampledRuns:
        """Failures drawn at random; planned restarts and falling back to storage as in the closed form."""
        found = self.goodput()
        if (expected := found.failures_per_s * self.work_s / found.share) > MOST_FAILURES:
            raise ValueError(
                f"failures: {expected:,.0f} in one run are more than can be drawn ({MOST_FAILURES:,}); write fewer "
                "--tokens, GPUs or failures"
            )
        how = replace(how, takes_node=self.rates.takes_node, repair_s=self.repair_s)
        runs = sample(self.work_s, found.interval_s, self.saves, self.restart, self.between_s, how)
        beside = goodput_of(self.saves, self.restart, self.between_s, found.interval_s)
        stretch = beside.share / found.share
        return SampledRuns(runs.seconds * stretch, runs.failures, runs.waiting_s, runs.stops_s * stretch)


@dataclass(frozen=True)
class Way:
    """One way to keep it running."""

    name: str
    share: float
    needs: str


def ways(run: Operation, left: float | None) -> list[Way]:
    """The same job kept running otherwise, the best first; `left`: the share of the speed that is kept with the nodes
    away that are on average."""
    found = []
    for kind in KINDS:
        for standby in (False, True):
            other = replace(run, kind=kind, interval_s=None, conditions=replace(run.conditions, standby=standby))
            needs = {"sync": "", "async": "host memory for a copy", "memory": "memory of other nodes"}[kind]
            name = f"{kind} saves" + (", warm standby" if standby else ", queued again")
            found.append(Way(name, other.goodput().share, needs))
    warm = replace(run, conditions=replace(run.conditions, standby=True)).goodput().share
    if left is not None:
        share = warm * shrunk_share(run.nodes_away, left)
        found.append(Way("goes on with fewer nodes", share, "no spares; the program starts on any number of nodes"))
    if run.replicas > 1:
        repair = run.restart.down_s + run.restart.recovery_s
        share = replica_share(run.rates, run.cluster.gpus, run.replicas, repair, PAUSE_S, run.step_s)
        found.append(Way(f"{run.replicas} replicas, each alone", share, "a program that drops and takes up replicas"))
    return sorted(found, key=lambda way: -way.share)


@dataclass(frozen=True)
class Worth:
    what: str
    seconds: float
    """saved"""


def worth(run: Operation, sampling: Sampling) -> list[Worth]:
    """What one more of each would save, largest first."""
    now = run.seconds
    faster = run.conditions
    changes: list[tuple[str, Callable[[], Operation]]] = [
        ("one hour more between failures", lambda: replace(run, rates=_rarer(run, run.between_s + HOUR_S))),
        ("failures noticed a minute earlier",
         lambda: replace(run, conditions=replace(faster, detect_s=max(run.restart.detect_s - 60.0, 0.0)))),
        ("a warm standby instead of the queue", lambda: replace(run, conditions=replace(faster, standby=True))),
        ("storage twice as fast", lambda: replace(run, conditions=replace(
            faster, write_bytes_per_s=2.0 * write_rate(run.cluster, faster),
            read_bytes_per_s=2.0 * read_rate(run.cluster, faster)))),
    ]  # fmt: skip
    found = [Worth(what, now - changed().seconds) for what, changed in changes]
    found.append(Worth("one percent less of the time stalled", now * 0.01))
    if sampling.spares is not None:
        more = replace(sampling, spares=sampling.spares + 1)
        gain = run.sampled(sampling).seconds.mean() - run.sampled(more).seconds.mean()
        found.append(Worth("one spare node more", float(gain)))
    return sorted(found, key=lambda each: -each.seconds)


def _rarer(run: Operation, between_s: float) -> FailureRates:
    factor = run.between_s / between_s
    return structs.replace(run.rates, by_component={c: r * factor for c, r in run.rates.by_component.items()})


@dataclass(frozen=True)
class SlowNode:
    """A node that does not fail but is slow: everybody waits for it."""

    chance: float
    """that there is at least one"""
    factor: float
    lost_per_day_s: float
    replace_after_s: float
    """by then waiting has cost as much as taking it out would have"""


def slow_node(run: Operation) -> SlowNode:
    nodes = published_times().nodes
    cost = run.restart.down_s - run.restart.detect_s + run.restart.recovery_s + run.saves.stall_s + run.saves.lands_s
    lost = 1.0 - 1.0 / nodes.slow_factor
    return SlowNode(
        chance=1.0 - (1.0 - nodes.slow_share) ** nodes_of(run.cluster), factor=nodes.slow_factor,
        lost_per_day_s=lost * 86_400.0, replace_after_s=cost / lost,
    )  # fmt: skip
