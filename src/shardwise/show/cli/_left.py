"""A cluster on which nothing is legal, such as one that lost a node: the best policy on what is left of it.

Either all GPUs work and some replicas take one micro-batch more than others, or some GPUs stay idle and the rest
divides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from shardwise.question import Question
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.policy import Policy
from shardwise.spec.sizes import Sizes

FEWEST = 0.5
"""share of the GPUs down to which is looked: a power of two lies there, which divides best"""


@dataclass(frozen=True)
class Left:
    case: Question
    cluster: Cluster
    name: str
    """of the cluster, as written on the command line"""
    why: str


def best_left(case: Question, sizes: Sizes, cluster: Cluster) -> Left | None:
    """The most tokens a second. So few GPUs that they could not beat the best so far at the best rate met of a GPU that
    does not wait are not looked at."""
    best, rate, chosen = 0.0, 0.0, None
    for left in _ways(case, sizes, cluster):
        if left.cluster.gpus * rate < best:
            break
        found = left.case.ranked(left.cluster).recommended
        if found is None:
            continue
        rate = max(rate, found.tokens_per_s_per_gpu / _busy(left.case.job, found.policy))
        if found.tokens_per_s_per_gpu * left.cluster.gpus > best:
            best, chosen = found.tokens_per_s_per_gpu * left.cluster.gpus, left
    return chosen


def _ways(case: Question, sizes: Sizes, cluster: Cluster) -> Iterator[Left]:
    gpus, batch = cluster.gpus, case.job.global_batch
    why = f"no policy divides {gpus:,} GPUs and {batch:,} sequences"
    uneven = replace(case, job=with_fields(case.job, uneven=True))
    yield Left(uneven, cluster, sizes.name_at(gpus),
               f"{why}: some replicas take one micro-batch more than "
               "others, who wait for them")  # fmt: skip
    step = 1 if gpus <= sizes.step and sizes.any_count else sizes.step
    for fewer in range((gpus - 1) // step * step, max(int(FEWEST * gpus), 1) - 1, -step):
        yield Left(case, sizes.at(fewer), sizes.name_at(fewer),
                   f"{why}: {gpus - fewer:,} GPUs stay idle")  # fmt: skip


def _busy(job: Job, policy: Policy) -> float:
    """Of the micro-batches that replicas could do while the busiest do theirs, the share that there is."""
    at_once = policy.dp * policy.micro_batch
    return job.global_batch / (at_once * -(-job.global_batch // at_once))
