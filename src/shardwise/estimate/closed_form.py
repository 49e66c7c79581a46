"""Model + Cluster + Job + Policies + Stack -> memory and time. The one entry for one policy and for a million."""

from dataclasses import dataclass, fields

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from shardwise.calibrate.overlay import curve_with, network_with, stack_with
from shardwise.calibrate.profile import Profile
from shardwise.cost.network import Network
from shardwise.cost.placement import Placement
from shardwise.estimate.layers import Machine
from shardwise.estimate.memory import Memory, memory_of
from shardwise.estimate.synced import Choice
from shardwise.estimate.time import Times, step_times
from shardwise.software import Stack
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import OVERLAPS, Policies
from shardwise.work import Work, work_of
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
    model: Model,
    cluster: Cluster,
    job: Job,
    policies: Policies,
    stack: Stack,
    *,
    every_stage: bool = False,
    profile: Profile | None = None,
    network: Network | None = None,
    sync: Choice | None = None,
) -> Estimate:
    """`profile`: what was measured on such a machine, in place of the shipped constants. `network`: this case's
    (`network_for`), for callers with many batches: it remembers the groups it has priced. `sync`: a strategy in place
    of the mean gradient, for policies it can run with (`allowed_with`)."""
    stack = stack_with(stack, profile)
    work = work_of(model, job, policies, stack, every_stage=every_stage)
    machine = machine_for(cluster, job, policies, work.stack, profile, network)
    times = step_times(work, machine, cluster, sync)
    memory = _memory(work, every_stage, sync, cluster)
    gpus = policies.dp * policies.tp * policies.pp * policies.cp
    return Estimate(
        work=work,
        times=times,
        memory=memory,
        fits=memory.peak + stack.memory.reserve_bytes <= cluster.gpu.memory_bytes,
        empty_stages=empty_stages(work.stages, work.layout),
        tokens_per_s_per_gpu=job.step_tokens / times.step_s / gpus,
    )


def _memory(work: Work, every_stage: bool, sync: Choice | None, cluster: Cluster) -> Memory:
    """What waits for what does not change what is held, so policies that differ in overlap only are looked at once."""
    policies = work.layout.policies
    runs = runs_of(policies, HELD_BY)
    if runs.of is None:
        return memory_of(work, sync, cluster)
    few = work_of(work.model, work.job, policies.take(runs.first), work.stack, every_stage=every_stage)
    return memory_of(few, sync, cluster).spread(runs)


def machine_for(
    cluster: Cluster,
    job: Job,
    policies: Policies,
    stack: Stack,
    profile: Profile | None = None,
    network: Network | None = None,
) -> Machine:
    """What prices the work of these policies; `stack` as the profile changes it (`stack_with`)."""
    placement = Placement()
    return Machine(
        curve=curve_with(cluster.gpu, profile),
        network=network or network_for(cluster, stack, profile),
        stack=stack,
        precision=job.precision,
        sizes=placement.sizes(policies),
        strides=placement.strides(policies),
    )


def network_for(cluster: Cluster, stack: Stack, profile: Profile | None = None) -> Network:
    """The cluster's network as this software drives it."""
    reached = {level.name: stack.network.fabric_efficiency for level in cluster.levels if level.kind == "network"}
    measured = profile.network.by_kind if profile is not None and profile.network is not None else {}
    return network_with(_slowed(cluster, stack), measured, reached)


def _slowed(cluster: Cluster, stack: Stack) -> Cluster:
    """The cluster with the stack's own latency on top of each network level's."""
    if not stack.network.fabric_latency_s:
        return cluster
    levels = tuple(
        replace(level, latency_s=level.latency_s + stack.network.fabric_latency_s) if level.kind == "network" else level
        for level in cluster.levels
    )
    return replace(cluster, levels=levels)
