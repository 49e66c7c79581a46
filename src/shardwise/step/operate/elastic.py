"""Going on without the node that failed: with fewer nodes until it is back, or replica by replica."""

from math import exp

from shardwise.step.operate.failures import FailureRates


def shrunk_share(away: float, left: float) -> float:
    """Speed of a job that goes on with the nodes it has: `away` are missing on average, at random, so that all
    are there exp(-away) of the time; otherwise it keeps `left` of its speed."""
    there = exp(-away)
    return there + (1.0 - there) * left


def replica_share(
    rates: FailureRates, gpus: int, replicas: int, replaced_s: float, pause_s: float, step_s: float
) -> float:
    """Speed of a job in which only the replica that failed stops: it is away for `replaced_s`, and at each leaving and
    joining the others pause and lose half a step."""
    per_replica = rates.per_gpu * gpus / replicas
    there = 1.0 / (1.0 + per_replica * replaced_s)
    return there / (1.0 + replicas * per_replica * (2.0 * pause_s + step_s / 2.0))
