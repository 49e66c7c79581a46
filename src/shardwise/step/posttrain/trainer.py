"""The trainer's side of a step: updates and passes for log-probabilities, packed, by the estimate of training."""

from dataclasses import dataclass

import numpy as np

from shardwise.cost.calibrate.profile import Profile
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job, Optimizer, Precision
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.work.case import Case, case_of

ROUNDED = 8
"""tokens that a packed sequence is rounded to"""
BACKWARD = 2.0
"""passes as long as a forward that a backward is"""


@dataclass(frozen=True)
class TrainerPrice:
    policy: Policy
    update_s: float
    """of all updates of a step"""
    forward_s: float
    """of one pass over all sequences of a step"""
    peak_bytes: float
    state_bytes: float
    """weights, gradients and optimizer of one GPU: what is offloaded while the engine runs"""


def packed_job(job: PosttrainJob, precision: Precision, optimizer: Optimizer, ranks: int) -> Job:
    """Sequences of mean length, so many that every rank has whole micro-batches of the longest length's tokens."""
    seq = max(ROUNDED, round(job.mean_tokens / ROUNDED) * ROUNDED)
    batch = -(-job.sequences // job.updates)
    return Job(seq=seq, global_batch=-(-batch // ranks) * ranks, precision=precision, optimizer=optimizer)


def packed_micro(job: PosttrainJob) -> int:
    """Mean sequences in a buffer as long as the longest: a power of two, as a search takes them."""
    return 1 << (max(1, int(job.longest // job.mean_tokens)).bit_length() - 1)


def case_with(
    model: Model, cluster: Cluster, job: PosttrainJob, stack: Stack, precision: Precision, optimizer: Optimizer,
    ranks: int, profile: Profile | None = None,
) -> Case:  # fmt: skip
    return case_of(model, cluster, packed_job(job, precision, optimizer, ranks), stack, profile)


def priced(case: Case, job: PosttrainJob, policy: Policy) -> TrainerPrice:
    """Of one policy. `case` has the packed job; what its batch was rounded up by is taken out again."""
    found = estimate(case, Policies.of([policy]))
    step = float(found.times.step_s[0]) * job.sequences / job.updates / case.job.global_batch
    passes = 1.0 + BACKWARD + (policy.recompute == "full")
    critic = 2.0 if job.rule.critic else 1.0
    state = _state(found)
    return TrainerPrice(
        policy=policy, update_s=critic * job.updates * step, forward_s=job.updates * step / passes,
        peak_bytes=float(np.max(found.memory.peak)) + (critic - 1.0) * state, state_bytes=critic * state,
    )  # fmt: skip


def _state(found: Estimate) -> float:
    held = ("parameters", "gradients", "optimizer")
    kinds = found.memory.kinds
    return float(max(np.max(sum(np.asarray(kinds[name]) for name in held if name in kinds)), 0.0))
