"""Gradients on their way to other replicas: copied into buckets, summed whole or as shares."""

import numpy as np
import pytest

from shardwise.cost.gpu import memory_seconds
from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

MODEL = model_of("llama-3-8b")
PARAMETERS = 8.03e9
PLAIN = stack_of("torch-fsdp").changed(bucket_copy_bytes=0.0)
BATCH = 32


def priced(stack: Stack, *policies: Policy, gpus: int = 8) -> Estimate:
    cluster = cluster_from(gpu_of("H200"), gpus, 8, 50e9)
    job = Job(seq=1024, global_batch=BATCH, precision=PRECISIONS["bf16-pure"])
    return estimate(case_of(MODEL, cluster, job, stack), Policies.of(list(policies)), every_stage=True)


def backward(stack: Stack, policy: Policy) -> float:
    return float(priced(stack, policy, gpus=policy.dp).times.parts["backward"][0])


@pytest.mark.parametrize(("policy", "times"), [
    (Policy(dp=8, zero=3), BATCH / 8), (Policy(dp=8, zero=2), BATCH / 8), (Policy(dp=8, zero=1), 1.0),
    (Policy(dp=8, zero=0), 1.0), (Policy(dp=1, zero=0), 0.0),
])  # fmt: skip
def test_buckets_are_filled_as_often_as_they_are_reduced(policy: Policy, times: float) -> None:
    more = backward(PLAIN.changed(bucket_copy_bytes=8.0), policy) - backward(PLAIN, policy)
    job = Job(seq=1024, global_batch=BATCH)
    curve = case_of(MODEL, cluster_from(gpu_of("H200"), 8, 8, 50e9), job, PLAIN).curve
    once = float(memory_seconds(curve, np.array(8.0 * PARAMETERS)))
    assert more == pytest.approx(times * once, rel=0.05, abs=1e-9)


def test_under_no_sync_they_are_filled_once() -> None:
    last = PLAIN.changed(reduces_last="always")
    often, once = (
        backward(s.changed(bucket_copy_bytes=8.0), Policy(dp=8, zero=3)) - backward(s, Policy(dp=8, zero=3))
        for s in (PLAIN, last)
    )
    assert often == pytest.approx(BATCH / 8 * once, rel=0.1)


def test_what_each_micro_batch_reduces_is_added_up_as_shares() -> None:
    adding = PLAIN.changed(grad_accumulation_bytes=6.0, frees_gradients=False)
    kept = PLAIN.changed(frees_gradients=False)
    shares, whole = (
        backward(adding, Policy(dp=8, zero=zero)) - backward(kept, Policy(dp=8, zero=zero)) for zero in (2, 1)
    )
    assert whole == pytest.approx(8 * shares, rel=0.1)


def test_a_policy_costs_the_same_alone_and_beside_other_stages_of_zero() -> None:
    stack = stack_of("deepspeed")
    policies = [Policy(dp=8, zero=zero) for zero in (0, 1, 2, 3)]
    together = priced(stack, *policies).times.step_s
    alone = [float(priced(stack, policy).times.step_s[0]) for policy in policies]
    assert together == pytest.approx(alone)


@pytest.mark.parametrize(("zero", "times"), [(1, 1.0), (2, BATCH / 8)])
def test_deepspeed_sums_whole_buckets_on_every_rank(zero: int, times: float) -> None:
    policy = Policy(dp=8, zero=zero)
    messages = priced(stack_of("deepspeed"), policy).work.parameter_messages
    sent = {message.op: float(message.count[0]) for message in messages}
    assert sent == {"all_reduce": times, "all_gather": 1.0}
    apart = priced(stack_of("deepspeed").changed(sums_whole=False), policy).work.parameter_messages
    assert {message.op for message in apart} == {"reduce_scatter", "all_gather"}
