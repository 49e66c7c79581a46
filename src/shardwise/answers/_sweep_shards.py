"""A point of a sweep, or the knee of one, as plain data: what an engine sends out and what comes back."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shardwise.answers._sweep_axes import SweepAxis, over_network
from shardwise.answers._sweep_knee import Knee, Points, knee_of
from shardwise.plugins.engines import Engine, Lost, Setup, run
from shardwise.question import Question
from shardwise.question.legal import legal_of
from shardwise.question.policy import check_inside
from shardwise.question.words import policy_from
from shardwise.refusal import is_refusal
from shardwise.report import Report
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths import DataStep, DrawnSteps

LOST = "lost"
"""how the verdict on a point begins whose worker died"""


class PointShard(Struct, frozen=True, tag="point"):
    case: Question
    cluster: Cluster
    policy: str


class KneeShard(Struct, frozen=True, tag="knee"):
    """The search for a knee of the network, which tries further bandwidths."""

    axis: SweepAxis
    case: Question
    cluster: Cluster
    policy: str
    points: Points
    """what runs: value, step, throughput per GPU"""


class PointAnswer(Struct, frozen=True, tag="point"):
    policy: Policy | None
    report: Report | None
    verdict: str
    data: DataStep | None = None
    """over the lengths of the data"""

    @property
    def step_s(self) -> float | None:
        """Of the data, where its lengths are known."""
        return self.data.step_s if self.data else self.report.step_s if self.report else None

    @property
    def runs(self) -> bool:
        return self.report is not None and self.report.fits and self.verdict == self.report.verdict


class KneeAnswer(Struct, frozen=True, tag="knee"):
    knee: Knee | None


class Refusal(Struct, frozen=True, tag="refused"):
    why: str


Shard = PointShard | KneeShard
Answer = PointAnswer | KneeAnswer | Refusal


def work(data: bytes) -> bytes:
    """Pure: the same bytes give the same bytes, on whatever machine."""
    shard = msgspec.msgpack.decode(data, type=Shard)
    answer: Answer
    try:
        answer = solve(shard) if isinstance(shard, PointShard) else KneeAnswer(_knee(shard))
    except ValueError as problem:
        if not is_refusal(problem):
            raise
        answer = Refusal(str(problem))
    return msgspec.msgpack.encode(answer)


def solve(shard: PointShard) -> PointAnswer:
    case, cluster = shard.case, shard.cluster
    policy = policy_from(shard.policy, case, cluster)
    if policy is None:
        return PointAnswer(None, None, "nothing fits")
    check_inside(policy, shard.policy, case.only, case.limits)
    if case.sync is not None:
        policy = replace(policy, sync=case.sync.text)
    verdict = legal_of(case.on(cluster), policy, cure=False)
    if not verdict.legal:
        return PointAnswer(policy, None, f"cannot run, {verdict.rule}: {verdict.why}")
    report = case.report(cluster, policy)
    return PointAnswer(policy, report, case.verdict(cluster, report), _over_data(shard, policy))


def _over_data(shard: PointShard, policy: Policy) -> DataStep | None:
    choice = shard.case.lengths
    if choice is None:
        return None
    return DrawnSteps(shard.case.on(shard.cluster), policy, choice.lengths).step(choice.packing)


def _knee(shard: KneeShard) -> Knee | None:
    place = over_network(shard.case, shard.cluster)

    def step_at(value: float) -> float | None:
        found = solve(PointShard(*place(value), shard.policy))
        return found.step_s if found.runs else None

    return knee_of(shard.axis, shard.points, step_at)


def answered(
    shards: Sequence[Shard], engine: Engine, setup: Setup, progress: Callable[[int, int], None] | None = None
) -> list[PointAnswer | KneeAnswer | None]:
    """An answer for each shard, None where Ctrl-C came first; the first that was refused is the user's mistake."""
    sent = [msgspec.msgpack.encode(shard) for shard in shards]
    found = run(engine, work, sent, setup, progress)
    return [None if data is None else _opened(data, shard) for data, shard in zip(found, shards, strict=True)]


def _opened(data: bytes | Lost, shard: Shard) -> PointAnswer | KneeAnswer:
    if isinstance(data, Lost):
        return PointAnswer(None, None, f"{LOST}: {data.why}") if isinstance(shard, PointShard) else KneeAnswer(None)
    answer: Answer = msgspec.msgpack.decode(data, type=Answer)
    if isinstance(answer, Refusal):
        raise ValueError(answer.why)
    return answer
