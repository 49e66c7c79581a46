"""What a restart and a save take where nobody measured it: published values, by the size of the job."""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from shardwise.spec.arch.tensors import parameters
from shardwise.spec.arch.tuned import trained_parameters, tuned
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.step.estimate.state import saved_state
from shardwise.step.operate.failures import COMPONENTS, FailureRates
from shardwise.step.operate.goodput import Restart, Saves, TwoLevels
from shardwise.step.operate.published import published_times

DETECTION = ("timeout", "inspected")
KINDS = ("sync", "async", "memory")


@dataclass(frozen=True)
class Conditions:
    """What an operator knows better than a catalog; None: as published."""

    detect: str = DETECTION[0]
    detect_s: float | None = None
    standby: bool = False
    """warm machines wait for the job"""
    write_bytes_per_s: float | None = None
    read_bytes_per_s: float | None = None
    restart_s: float | None = None
    """groups, load and first steps together"""
    repair_s: float | None = None
    """until a node that failed is back"""


def checkpoint_bytes(model: Model, job: Job) -> float:
    """What a run needs to go on, of what is trained."""
    state = saved_state(model, job)
    return state.total if job.tuning is None else trained_parameters(tuned(model, job.tuning)) * state.each


def loaded_bytes(model: Model, job: Job) -> float:
    """A checkpoint, and the weights beside it that are not trained: a checkpoint does not hold them."""
    beside = 0.0 if job.tuning is None else parameters(model) * job.precision.param_bytes
    return checkpoint_bytes(model, job) + beside


def nodes_of(cluster: Cluster) -> int:
    return ceil(cluster.gpus / cluster.node_size)


def write_rate(cluster: Cluster, conditions: Conditions) -> float:
    if conditions.write_bytes_per_s is not None:
        return conditions.write_bytes_per_s
    storage = published_times().storage
    return min(nodes_of(cluster) * storage.node_bytes_per_s, storage.most_written_per_s)


def read_rate(cluster: Cluster, conditions: Conditions) -> float:
    if conditions.read_bytes_per_s is not None:
        return conditions.read_bytes_per_s
    storage = published_times().storage
    return min(nodes_of(cluster) * storage.node_bytes_per_s, storage.most_read_per_s)


def restart_of(
    rates: FailureRates, cluster: Cluster, read_bytes: float, step_s: float, conditions: Conditions
) -> Restart:
    first = published_times().start
    start = first.groups_s + first.warm_up_steps * step_s
    load = read_bytes / read_rate(cluster, conditions)
    if conditions.restart_s is not None:
        start, load = max(conditions.restart_s - load, 0.0), min(load, conditions.restart_s)
    return Restart(detect_s=_detect_s(rates, conditions), schedule_s=schedule_s(cluster.gpus, warm=conditions.standby),
                   start_s=start, load_s=load)  # fmt: skip


def _detect_s(rates: FailureRates, conditions: Conditions) -> float:
    if conditions.detect_s is not None:
        return conditions.detect_s
    known = published_times().detect
    if conditions.detect == DETECTION[0] or not rates.per_gpu:
        return known.timeout_s
    return sum(rates.share(each) * known.inspected_s.get(each, known.timeout_s) for each in COMPONENTS)


def schedule_s(gpus: int, *, warm: bool) -> float:
    known = published_times().schedule
    doublings = [log2(size) for size in known.gpus]
    at = log2(max(gpus, 1))
    beyond = max(at - doublings[-1], 0.0) * (known.requeue_s[-1] - known.requeue_s[-2])
    queued = float(np.interp(at, doublings, known.requeue_s)) + beyond
    return queued / known.warm_standby_times_faster if warm else queued


def saves_of(kind: str, cluster: Cluster, saved_bytes: float, conditions: Conditions) -> Saves:
    written, stalls = saved_bytes / write_rate(cluster, conditions), published_times().save
    if kind == "sync":
        return Saves(kind=kind, stall_s=written, lands_s=0.0, bytes=saved_bytes)
    copied = saved_bytes / cluster.gpus / cluster.gpu.host_bandwidth
    if kind == "async":
        return Saves(kind=kind, stall_s=stalls.asynchronous_s + copied, lands_s=written, bytes=saved_bytes)
    return Saves(kind=kind, stall_s=stalls.memory_s, lands_s=0.0, bytes=saved_bytes)


def levels_of(whole: Restart, cluster: Cluster, saved_bytes: float, conditions: Conditions) -> TwoLevels:
    """A copy in memory is at hand at once; storage is written without a stall beyond the copy to the host. `whole`: a
    restart from storage."""
    return TwoLevels(
        memory=saves_of("memory", cluster, saved_bytes, conditions),
        storage=saves_of("async", cluster, saved_bytes, conditions),
        from_memory=Restart(detect_s=whole.detect_s, schedule_s=whole.schedule_s, start_s=whole.start_s, load_s=0.0),
        from_storage=whole,
        beyond_memory=published_times().save.beyond_memory,
    )
