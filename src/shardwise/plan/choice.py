"""The one policy to take: as fast as any that can be told apart, with memory to spare, near what was measured.

How the rules do on measured jobs, sources left out: `python benchmarks/choice.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.plan.candidate import Candidate
from shardwise.plan.nearest import nearest_run
from shardwise.spec.policy import ORDERS, Policy
from shardwise.step.estimate.chance import out_of_memory_chance
from shardwise.work.case import Case

RISK = 0.05
"""largest chance to run out of memory that a plan takes, if not told another: one run in twenty. Measured jobs alone
would allow 0.3, with which no pick ran out of memory (`benchmarks/choice.py --risk`)"""
SAFE = 0.01
"""the same of the safest"""
ALIKE = 0.02
"""policies of one job whose predicted steps differ by less were measured in the predicted order in 58 of 100 pairs;
taking the roomier of them costs no measured speed (`benchmarks/choice.py`: alike_order, regret_recommended)"""
FAR = 3.0
"""doublings from the nearest measured run from which on ..."""
FAR_COUNTS = 0.05
"""... a policy must be so much faster by prediction to be taken. Set on the same jobs (regret_without_far)"""
POOL = 32
"""of the fastest, those that are weighed against each other"""
PLAIN_SCHEDULES = ("none", "gpipe", "1f1b", "interleaved")


@dataclass(frozen=True)
class Weighed:
    """A policy, and what speaks against it besides its step."""

    found: Candidate
    chance: float
    """to run out of memory"""
    distance: float
    """doublings from the nearest measured run"""

    @property
    def counted_s(self) -> float:
        """What its step is taken for: a little longer where no run like it was measured."""
        return self.found.to_loss_s * (1.0 + FAR_COUNTS * (self.distance >= FAR))


def recommended_of(case: Case, pool: Sequence[Candidate]) -> Candidate | None:
    chances = out_of_memory_chance(case, np.array([found.peak_bytes for found in pool]))
    weighed = [
        Weighed(found, float(chance), nearest_run(case, found.policy).distance)
        for found, chance in zip(pool, chances, strict=True)
    ]
    taken = best_of(weighed)
    return None if taken is None else taken.found


def best_of(pool: Sequence[Weighed]) -> Weighed | None:
    """Of those that are as fast as far as can be told: what is not near the memory's edge, then the simplest. Away from
    the edge more room is worth nothing, so the fastest is next; near it what leaves most memory free."""
    sound = [each for each in pool if not _dominated(each, pool)]
    least = min((each.counted_s for each in sound), default=0.0)
    alike = [each for each in sound if each.counted_s <= least * (1.0 + ALIKE)]
    return min(alike, default=None, key=lambda each: (
        each.chance > RISK, mechanisms(each.found.policy), each.counted_s if each.chance <= RISK else 0.0,
        each.found.peak_bytes,
    ))  # fmt: skip


def _dominated(policy: Weighed, pool: Sequence[Weighed]) -> bool:
    """Another is faster and less likely to run out of memory."""
    return any(each.found.to_loss_s < policy.found.to_loss_s and each.chance < policy.chance for each in pool)


def mechanisms(policy: Policy) -> int:
    """What has to be set up and can go wrong, or is done twice, beyond plain data, tensor and pipeline parallelism."""
    return (
        2 * (policy.offload != "none")
        + (policy.vpp > 1)
        + (policy.schedule not in PLAIN_SCHEDULES)
        + (policy.cp > 1)
        + (policy.recompute != "none")
        + (policy.recompute == "full" and policy.recompute_layers >= 0)
        + (policy.shard_group > 0)
        + (policy.order != ORDERS[0])
    )
