"""Memory that is freed late fills what is there, and is given back where it is needed."""

import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

MODEL = model_of("llama-2-7b")
JOB = Job(seq=4096, global_batch=512)
LATE = stack_of("nanotron")
AT_ONCE = LATE.changed(gathered_kept_less=-1)


def cluster_with(gpus: int, memory_bytes: float) -> Cluster:
    cluster = cluster_from("h100", gpus, 8)
    return replace(cluster, gpu=replace(cluster.gpu, memory_bytes=memory_bytes))


def of(policy: Policy, stack: Stack, memory_bytes: float = 1e12) -> Estimate:
    cluster = cluster_with(policy.gpus, memory_bytes)
    return estimate(case_of(MODEL, cluster, JOB, stack), Policies.of([policy]), every_stage=True)


def peak(policy: Policy, stack: Stack, memory_bytes: float = 1e12) -> float:
    return float(of(policy, stack, memory_bytes).memory.peak[0])


def test_gathered_inputs_stay_for_the_micro_batch_in_flight() -> None:
    """Two split products in a layer, each with an input of 2 bytes for every token and feature, of which a rank holds
    an eighth anyway."""
    policy = Policy(tp=8, dp=8, micro_batch=4)
    whole = 2 * MODEL.layers * 4 * 4096 * MODEL.hidden * 2
    assert peak(policy, LATE) - peak(policy, AT_ONCE) == pytest.approx(whole * 7 / 8)


def test_without_tensor_parallelism_nothing_is_gathered() -> None:
    policy = Policy(dp=64, micro_batch=4)
    assert peak(policy, LATE) == peak(policy, AT_ONCE)


def test_what_is_freed_late_never_makes_a_run_too_big() -> None:
    policy = Policy(tp=8, dp=8, micro_batch=8)
    live, asked = peak(policy, AT_ONCE), peak(policy, LATE)
    room = (live + asked) / 2 + LATE.memory.reserve_bytes
    assert peak(policy, LATE, room) == live
    assert of(policy, LATE, room).fits[0]
    assert not of(policy, LATE, live + LATE.memory.reserve_bytes - 1e6).fits[0]
