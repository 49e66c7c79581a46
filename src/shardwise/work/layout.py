"""The integers a policy implies for a job: micro-batches, tokens per rank, group sizes. One column per policy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.plugins.schedules import used
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import SHARDED, Policies, expert_tp

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    policies: Policies
    tp: Numbers
    cp: Numbers
    pp: Numbers
    vpp: Numbers
    dp: Numbers
    ep: Numbers
    etp: Numbers
    sp: Numbers
    """ranks that share the sequence between the split products: tp with sequence parallelism, else 1"""
    sequences: Numbers
    """sequences in one micro-batch"""
    tokens: Numbers
    """tokens of one micro-batch on one context-parallel rank"""
    local_seq: Numbers
    micro_batches: Numbers
    """of a step, on one replica"""
    passes: Numbers
    """times a step fills and drains its pipeline"""
    grad_ranks: Numbers
    """ranks that hold the same dense parameters: dp x cp"""
    expert_ranks: Numbers
    """ranks that hold the same experts"""
    shard: Numbers
    """ranks over which ZeRO shards the dense parameters"""
    expert_shard: Numbers
    replicas: Numbers
    """copies of each shard (more than 1 with a shard_group)"""

    @property
    def in_pass(self) -> Numbers:
        """Micro-batches that pass the pipeline before it drains."""
        return self.micro_batches / self.passes


def layout_of(model: Model, job: Job, policies: Policies, batches: Ints | None = None) -> Layout:
    """`batches`: the global batch of each policy, where they differ; None: the job's."""
    tp, cp, dp = (getattr(policies, axis).astype(np.float64) for axis in SHARDED)
    ep = policies.ep.astype(np.float64)
    etp = expert_tp(policies).astype(np.float64)
    grad_ranks = dp * cp
    experts = any(kind.experts for kind in model.kinds)
    expert_ranks = np.maximum(grad_ranks * tp / (ep * etp), 1.0) if experts else grad_ranks
    group = np.where(policies.shard_group > 0, policies.shard_group, grad_ranks).astype(np.float64)
    group = np.minimum(group, grad_ranks)
    local_seq = job.seq / cp
    sequences, passes = policies.micro_batch.astype(np.float64), np.where(policies.pp > 1, job.pipeline_passes, 1)
    each = (np.ceil if job.uneven else np.floor)(
        (job.global_batch if batches is None else batches) / (dp * sequences * passes)
    )
    return Layout(
        policies=policies,
        tp=tp,
        cp=cp,
        pp=policies.pp.astype(np.float64),
        vpp=policies.vpp.astype(np.float64),
        dp=dp,
        ep=ep,
        etp=etp,
        sp=np.where(policies.sp > 0, tp, 1.0),
        sequences=sequences,
        tokens=sequences * local_seq,
        local_seq=local_seq,
        micro_batches=passes * np.maximum(each, 1.0),
        passes=passes.astype(np.float64),
        grad_ranks=grad_ranks,
        expert_ranks=expert_ranks,
        shard=group,
        expert_shard=_expert_shard(group, expert_ranks),
        replicas=grad_ranks / group,
    )


def _expert_shard(group: Numbers, ranks: Numbers) -> Numbers:
    """As many of the ranks with the same experts as dense parameters are sharded over; all groups are alike, so where
    that does not divide them, the largest number that divides both."""
    most = np.maximum(np.minimum(group, ranks), 1.0)
    both = np.gcd(group.astype(np.int64), ranks.astype(np.int64)).astype(np.float64)
    return np.where(ranks % most == 0, most, np.maximum(both, 1.0))


def sharded_over(zero: Ints, stage: int, ranks: Numbers) -> Numbers:
    """The divisor ZeRO gives to something it shards from `stage` on."""
    return np.where(zero >= stage, ranks, 1.0)


def copies_held(policies: Policies) -> Numbers:
    """Of each part of the model on a pipeline: two with a schedule that runs from both ends."""
    copies = np.ones(len(policies))
    for code, schedule in used(policies.schedule):
        if schedule.both_ends:
            copies = copies + (policies.schedule == code)
    return copies


def passing(layout: Layout) -> Numbers:
    """Micro-batches of a step that pass each part of the model on a rank: half of them where it is there twice."""
    return layout.micro_batches / copies_held(layout.policies)
