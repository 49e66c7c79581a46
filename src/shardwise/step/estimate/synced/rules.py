"""Which policies a strategy can run with; the others get the reason."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import ORDERS, Policies, Policy
from shardwise.step.estimate.synced.choice import SyncChoice
from shardwise.work.layout import layout_of

MOST_WORKERS = 2048
"""the trace of a strategy is told worker by worker"""
CP_INSIDE = tuple(code for code, order in enumerate(ORDERS) if order.index("cp") < order.index("dp"))


@lru_cache(maxsize=65_536)
def workers_refusal(choice: SyncChoice, count: int) -> str:
    """Why so many workers cannot; empty: they can."""
    if count < 2:
        return "one worker has nobody to talk to; write dp 2 or more (with ZeRO a --shard-group smaller than dp x cp)"
    if count > MOST_WORKERS:
        return f"{count:,} workers; strategies are priced for {MOST_WORKERS:,} at most"
    try:
        choice.strategy.check(count)
    except ValueError as error:
        return str(error)
    return ""


def job_refusal(choice: SyncChoice, job: Job) -> str:
    strategy = choice.strategy
    if strategy.needs_optimizer() != "any" and job.optimizer.name != strategy.needs_optimizer():
        return (
            f"{strategy.name} keeps moments or momentum itself and assumes plain SGD around it, not "
            f"{job.optimizer.name}; write --optimizer sgd"
        )
    return ""


def allowed_with(choice: SyncChoice, model: Model, job: Job, policies: Policies) -> NDArray[np.bool_]:
    """True where the strategy can run."""
    if job_refusal(choice, job):
        return np.zeros(len(policies), dtype=np.bool_)
    layout, strategy = layout_of(model, job, policies), choice.strategy
    sharded = policies.zero > 0
    count = np.where(sharded, np.rint(layout.grad_ranks / layout.shard), policies.dp).astype(np.int64)
    ok = np.isin(count, [n for n in np.unique(count) if not workers_refusal(choice, int(n))])
    if strategy.needs_whole:
        ok &= ~sharded
    inside = (layout.shard % policies.cp == 0) & np.isin(policies.order, CP_INSIDE)
    ok &= ~sharded | (policies.cp == 1) | inside
    if any(kind.experts for kind in model.kinds):
        together = layout.expert_ranks == layout.grad_ranks
        apart = strategy.gradient_only & ~sharded
        groups = layout.expert_ranks.astype(np.int64)
        fine = np.isin(groups, [n for n in np.unique(groups) if not workers_refusal(choice, int(n))])
        ok &= together | (apart & fine)
    return np.asarray(ok)


def refusal(choice: SyncChoice, model: Model, job: Job, policy: Policy) -> str:
    """Why a policy cannot run with it; empty: it can."""
    columns = Policies.of([policy])
    if bool(allowed_with(choice, model, job, columns)[0]):
        return ""
    if why := job_refusal(choice, job):
        return why
    name, layout = choice.strategy.name, layout_of(model, job, columns)
    if policy.zero:
        if why := choice.strategy.needs_whole:
            return f"{name}: {why}, and ZeRO {policy.zero} leaves each rank a shard; write --zero 0"
        if not policy.shard_group or layout.grad_ranks[0] == layout.shard[0]:
            return (
                f"ZeRO {policy.zero} over all {int(layout.shard[0])} ranks leaves no two workers with a whole gradient "
                f"for {name}; write --zero 0, or --shard-group N: it then runs across the groups"
            )
        if policy.cp > 1 and (layout.shard[0] % policy.cp or ORDERS.index(policy.order) not in CP_INSIDE):
            return f"a shard group must hold whole sequences: --shard-group a multiple of cp {policy.cp}, cp inside dp"
    count = int(layout.grad_ranks[0] / layout.shard[0]) if policy.zero else policy.dp
    if why := workers_refusal(choice, count):
        return why
    if choice.strategy.gradient_only:
        return f"experts spread over replicas (ep {policy.ep}) and ZeRO {policy.zero} with {name}; write --zero 0"
    return (
        f"{name} lets replicas differ, and ep {policy.ep} sends tokens of one replica to experts of another; "
        "write --ep 1, or a strategy that only averages gradients"
    )
