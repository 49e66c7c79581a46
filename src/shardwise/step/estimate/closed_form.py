"""Case + Policies -> memory and time. The one entry for one policy and for a million."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.cost.placement import Placement
from shardwise.spec.policy import OVERLAPS, Policies
from shardwise.step.estimate.learned import after_runs, least_after_runs
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.memory import Memory, memory_of
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.estimate.time import Times, step_times
from shardwise.work import Work, work_of
from shardwise.work.case import Case
from shardwise.work.layout import Numbers
from shardwise.work.runs import runs_of
from shardwise.work.stages import empty_stages

HELD_BY = tuple(field.name for field in fields(Policies) if field.name not in OVERLAPS)


@dataclass(frozen=True)
class Estimate:
    work: Work
    times: Times
    memory: Memory
    fits: NDArray[np.bool_]
    tokens_per_s_per_gpu: Numbers
    empty_stages: Numbers
    """stages that hold no layer and neither end: some programs cannot start with one"""


def estimate(
    case: Case, policies: Policies, *, every_stage: bool = False, sync: SyncChoice | None = None,
    batches: Ints | None = None,
) -> Estimate:  # fmt: skip
    """`sync`: a strategy in place of the mean gradient, for policies it can run with (`allowed_with`). `batches`: the
    global batch of each policy, where they differ; None: the job's."""
    work = work_of(case, policies, every_stage=every_stage, batches=batches)
    machine = machine_for(case, policies)
    cluster, job = case.cluster, case.job
    times = after_runs(case, work, step_times(work, machine, cluster, sync))
    memory = _memory(case, work, every_stage, sync) if batches is None else memory_of(work, sync, cluster)
    gpus = policies.dp * policies.tp * policies.pp * policies.cp
    return Estimate(
        work=work,
        times=times,
        memory=memory,
        fits=memory.peak + case.stack.memory.reserve_bytes <= cluster.gpu.memory_bytes,
        empty_stages=empty_stages(work.stages, work.layout),
        tokens_per_s_per_gpu=job.seq * (job.global_batch if batches is None else batches) / times.step_s / gpus,
    )


def memory_alone(case: Case, policies: Policies, sync: SyncChoice | None = None) -> Memory:
    """The same memory without the times, for a fraction of the work."""
    return _memory(case, work_of(case, policies, every_stage=False), False, sync)


def floor_times(case: Case, policies: Policies) -> Times:
    """For `work_alone`: time only, and without what it leaves out."""
    work = work_of(case, policies, every_stage=False)
    return least_after_runs(case, work, step_times(work, machine_for(case, policies), case.cluster, for_floors=True))


def _memory(case: Case, work: Work, every_stage: bool, sync: SyncChoice | None) -> Memory:
    """What waits for what does not change what is held, so policies that differ in overlap only are looked at once."""
    policies = work.layout.policies
    runs = runs_of(policies, HELD_BY)
    if runs.of is None:
        return memory_of(work, sync, case.cluster)
    few = work_of(case, policies.take(runs.first), every_stage=every_stage)
    return memory_of(few, sync, case.cluster).spread(runs)


def machine_for(case: Case, policies: Policies) -> Machine:
    """What prices the work of these policies."""
    placement = Placement()
    return Machine(
        curve=case.curve,
        network=case.network,
        stack=case.stack,
        precision=case.job.precision,
        sizes=placement.sizes(policies),
        strides=placement.strides(policies),
    )
