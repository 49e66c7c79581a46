"""Going on without the node that failed: with fewer nodes until it is back, or replica by replica."""

from math import exp, expm1

from shardwise.step.operate.failures import FailureRates


def shrunk_share(away: float, left: float) -> float:
    """Speed of a job that goes on with the nodes it has: `away` are missing on average, at random, so that all
    are there exp(-away) of the time; otherwise it keeps `left` of its speed."""
    there = exp(-away)
    return there + (1.0 - there) * left


def replica_share(
    rates: FailureRates, gpus: int, replicas: int, replaced_s: float, pause_s: float, step_s: float,
    others_lose: float = 0.5,
) -> float:  # fmt: skip
    """Speed of a job in which only the replica that failed stops: it loses the step under way, is away for
    `replaced_s`, in which it may fail again, and joins at a step's end; at each leaving and joining the others pause,
    and lose `others_lose` of a step where they do not keep their gradients."""
    per_replica = rates.per_gpu * gpus / replicas
    if not per_replica:
        return 1.0
    whole_steps_s = step_s / expm1(per_replica * step_s)
    cycle_s = 1.0 / per_replica + expm1(per_replica * replaced_s) / per_replica + step_s / 2.0
    return whole_steps_s / cycle_s / (1.0 + replicas * per_replica * (2.0 * pause_s + others_lose * step_s))
