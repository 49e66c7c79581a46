"""The one policy to take: as fast as any that can be told apart, with memory to spare, near what was measured.

How the rules do on measured jobs, sources left out: `python benchmarks/choice.py`.
"""

from collections.abc import Sequence

from shardwise.case import Case
from shardwise.plan.candidate import Candidate
from shardwise.plan.nearest import nearest_run
from shardwise.spec.policy import ORDERS, Policy

RISK = 0.2
"""largest chance to run out of memory that a plan takes, if not told another. Set on measured jobs: with it no pick ran
out of memory, with less the picks were slower (`benchmarks/choice.py --risk`)"""
SAFE = 0.01
"""the same of the safest"""
ALIKE = 0.01
"""policies of one job whose predicted steps differ by less were measured in the predicted order hardly more often than
in the other (`benchmarks/choice.py`: alike_order)"""
FAR = 3.0
"""doublings from the nearest measured run from which on ..."""
FAR_COUNTS = 0.05
"""... a policy must be so much faster by prediction to be taken. Set on the same jobs (regret_without_far)"""
POOL = 32
"""of the fastest, those that are weighed against each other"""
PLAIN_SCHEDULES = ("none", "gpipe", "1f1b", "interleaved")


def recommended_of(case: Case, pool: Sequence[Candidate]) -> Candidate | None:
    """Of those that are as fast as far as can be told: the simplest, then what leaves most memory free."""
    if not pool:
        return None
    counted = [found.to_loss_s * counts_as(case, found.policy) for found in pool]
    alike = [found for found, s in zip(pool, counted, strict=True) if s <= min(counted) * (1.0 + ALIKE)]
    return min(alike, key=lambda found: (mechanisms(found.policy), found.peak_bytes))


def counts_as(case: Case, policy: Policy) -> float:
    """What a predicted step is taken for: a little longer where no run like it was measured."""
    return 1.0 + FAR_COUNTS if nearest_run(case, policy).distance >= FAR else 1.0


def mechanisms(policy: Policy) -> int:
    """What has to be set up and can go wrong beyond plain data, tensor and pipeline parallelism."""
    return (
        2 * (policy.offload != "none")
        + (policy.vpp > 1)
        + (policy.schedule not in PLAIN_SCHEDULES)
        + (policy.cp > 1)
        + (policy.recompute == "full" and policy.recompute_layers >= 0)
        + (policy.shard_group > 0)
        + (policy.order != ORDERS[0])
    )
