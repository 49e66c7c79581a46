"""Look at every legal policy: the closed form in batches, the fastest that fits with room to spare first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from shardwise.cost.profile import Profile
from shardwise.estimate.closed_form import estimate
from shardwise.search.constraints import Constraint, allowed
from shardwise.search.losers import Loser, losers, picks
from shardwise.search.pareto import staircase
from shardwise.search.space import Limits, space
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Ints, Policies, Policy
from shardwise.spec.stack import Stack

CHUNK = 16_384
"""policies per batch: from here on larger batches gain a few percent and cost memory and a slower Ctrl-C"""
EXACT = 64
"""policies beyond the asked number that are looked at on every stage at a time"""
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
    frontier: tuple[Candidate, ...]
    """policies inside the limit that no other equals in both step time and memory, fastest first"""
    smallest: Candidate | None
    """what needs the least memory, when nothing fits"""
    points: int
    """grid points looked at, legal or not"""
    legal: int
    """inside the constraints too"""
    evaluated: int
    """fewer than legal when interrupted"""
    fitting: int
    """policies inside the limit; those that decide nothing are counted by their likely worst stages only"""
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
    only: Iterable[Constraint] = (),
    progress: Callable[[int, int], None] | None = None,
    profile: Profile | None = None,
) -> Ranked:
    """Ranks by step time among the policies that fit into `headroom` of the memory; ties go to the smaller one.

    `only` leaves out what the user does not allow. `progress` is told (evaluated, legal) after each batch. Ctrl-C ends
    the scan; what was evaluated is ranked.
    """
    if not 0 < headroom <= 1:
        raise ValueError(f"headroom: {headroom:g} is out of range; write a share of the memory above 0 and at most 1")
    if top < 1:
        raise ValueError(f"top: {top} is out of range; write a whole number of 1 or more")
    found = space(model, cluster, job, stack, limits)
    policies = found.policies.take(np.flatnonzero(allowed(found.policies, only)))
    results = _Results(model, cluster, job, stack, policies, profile)
    done = results.evaluate(progress)
    limit = min(headroom * cluster.gpu.memory_bytes, cluster.gpu.memory_bytes - stack.reserve_bytes)
    order = results.settle(limit, top)
    winner = int(order[0]) if len(order) else None
    return Ranked(
        best=tuple(results.candidate(int(i)) for i in order),
        losers=() if winner is None else results.losers(limit, winner),
        frontier=tuple(results.candidate(int(i)) for i in results.frontier(limit)),
        smallest=results.candidate(int(np.argmin(results.peaks))) if done and winner is None else None,
        points=found.points,
        legal=len(policies),
        evaluated=done,
        fitting=int((results.peaks <= limit).sum()),
        limit_bytes=limit,
    )


class _Results:
    """Step time and peak of every policy: first on the stages most likely to be the worst, then, for the policies that
    decide something, on every stage. The first is never more than the second, so the order found is the true one."""

    def __init__(
        self, model: Model, cluster: Cluster, job: Job, stack: Stack, policies: Policies, profile: Profile | None
    ) -> None:
        self.given = (model, cluster, job)
        self.stack, self.policies, self.profile = stack, policies, profile
        self.steps, self.peaks = np.empty(len(policies)), np.empty(len(policies))
        self.exact = np.zeros(len(policies), dtype=np.bool_)

    def evaluate(self, progress: Callable[[int, int], None] | None) -> int:
        """How many were evaluated: all, or those before an interruption; the others are dropped."""
        done, size = 0, len(self.policies)
        try:
            while done < size:
                part = slice(done, min(done + CHUNK, size))
                self._fill(part, every_stage=False)
                done = part.stop
                if progress is not None:
                    progress(done, size)
        except KeyboardInterrupt:
            self.policies = self.policies.take(slice(0, done))
            self.steps, self.peaks, self.exact = self.steps[:done], self.peaks[:done], self.exact[:done]
        return done

    def _fill(self, part: slice | Ints, *, every_stage: bool) -> None:
        result = estimate(
            *self.given, self.policies.take(part), self.stack, every_stage=every_stage, profile=self.profile
        )
        self.steps[part], self.peaks[part] = result.times.step_s, result.memory.peak
        self.exact[part] = every_stage

    def settle(self, limit: float, top: int) -> Ints:
        """The fastest that fit, once every one of them has been looked at on every stage."""
        while True:
            fits = self.peaks <= limit
            order = np.lexsort((self.peaks, np.where(fits, self.steps, np.inf)))[: int(fits.sum())]
            if self.exact[order[:top]].all():
                return np.asarray(order[:top])
            ahead = order[: top + EXACT]
            self._fill(ahead[~self.exact[ahead]], every_stage=True)

    def losers(self, limit: float, winner: int) -> tuple[Loser, ...]:
        while True:
            chosen = np.array(
                list(picks(self.policies, self.steps, self.peaks, limit, winner).values()), dtype=np.int64
            )
            open_ = np.unique(chosen[~self.exact[chosen]])
            if not len(open_):
                return losers(self.policies, self.steps, self.peaks, limit, winner)
            self._fill(open_, every_stage=True)

    def frontier(self, limit: float) -> Ints:
        while True:
            steps = staircase(self.steps, self.peaks, limit)
            open_ = steps[~self.exact[steps]]
            if not len(open_):
                return steps
            self._fill(open_, every_stage=True)

    def candidate(self, index: int) -> Candidate:
        _, cluster, job = self.given
        step = float(self.steps[index])
        return Candidate(self.policies[index], step, job.step_tokens / step / cluster.gpus, float(self.peaks[index]))
