"""Look at every legal policy: the closed form in batches, the fastest that fits with room to spare first."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.estimate.closed_form import estimate
from shardwise.search.losers import Loser, losers
from shardwise.search.space import Limits, space
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack

CHUNK = 16_384
"""policies per batch: from here on larger batches gain a few percent and cost memory and a slower Ctrl-C"""
HEADROOM = 0.94
"""share of a GPU's memory a plan may fill: estimates err, and allocators fragment"""


@dataclass(frozen=True)
class Candidate:
    policy: Policy
    step_s: float
    tokens_per_s_per_gpu: float
    peak_bytes: float


@dataclass(frozen=True)
class Ranked:
    best: tuple[Candidate, ...]
    losers: tuple[Loser, ...]
    """the best policy of each kind that did not win, and by how much"""
    smallest: Candidate | None
    """what needs the least memory, when nothing fits"""
    points: int
    """grid points looked at, legal or not"""
    legal: int
    evaluated: int
    """fewer than legal when interrupted"""
    fitting: int
    limit_bytes: float


def scan(
    model: Model,
    cluster: Cluster,
    job: Job,
    stack: Stack,
    *,
    top: int = 10,
    headroom: float = HEADROOM,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Ranked:
    """Ranks by step time among the policies that fit into `headroom` of the memory; ties go to the smaller one.

    `progress` is told (evaluated, legal) after each batch. Ctrl-C ends the scan; what was evaluated is ranked.
    """
    if not 0 < headroom <= 1:
        raise ValueError(f"headroom: {headroom:g} is out of range; write a share of the memory above 0 and at most 1")
    if top < 1:
        raise ValueError(f"top: {top} is out of range; write a whole number of 1 or more")
    found = space(model, cluster, job, stack, limits)
    policies, legal = found.policies, len(found.policies)
    steps, peaks, done = _evaluate(model, cluster, job, stack, found.policies, progress)
    limit = headroom * cluster.gpu.memory_bytes
    fits = peaks <= limit
    order = np.lexsort((peaks, np.where(fits, steps, np.inf)))[: min(top, int(fits.sum()))]
    rate = job.step_tokens / cluster.gpus

    def candidate(i: int) -> Candidate:
        return Candidate(policies[i], float(steps[i]), rate / float(steps[i]), float(peaks[i]))

    winner = int(order[0]) if len(order) else None
    return Ranked(
        best=tuple(candidate(int(i)) for i in order),
        losers=losers(policies.take(slice(0, done)), steps, peaks, limit, winner),
        smallest=candidate(int(np.argmin(peaks))) if done and winner is None else None,
        points=found.points,
        legal=legal,
        evaluated=done,
        fitting=int(fits.sum()),
        limit_bytes=limit,
    )


def _evaluate(
    model: Model,
    cluster: Cluster,
    job: Job,
    stack: Stack,
    policies: Policies,
    progress: Callable[[int, int], None] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """(step seconds, peak bytes, how many): all policies, or those before an interruption."""
    steps, peaks = np.empty(len(policies)), np.empty(len(policies))
    done = 0
    try:
        while done < len(policies):
            part = slice(done, min(done + CHUNK, len(policies)))
            result = estimate(model, cluster, job, policies.take(part), stack)
            steps[part], peaks[part] = result.times.step_s, result.memory.peak
            done = part.stop
            if progress is not None:
                progress(done, len(policies))
    except KeyboardInterrupt:
        pass
    return steps[:done], peaks[:done], done
