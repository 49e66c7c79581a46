"""What programs keep of gradients and make while they update: DDP's buckets, whole sums, copies of moments."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from, cluster_of, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

MODEL = model_of("llama-3-8b")
PARAMETERS = 8.03e9
PLAIN = stack_of("torch-fsdp")
PURE = PRECISIONS["bf16-pure"]


def priced(stack: Stack, policy: Policy, batch: int, precision: str = "bf16-pure") -> Estimate:
    gpus = policy.dp * policy.tp
    cluster = cluster_from(gpu_of("H200"), gpus, 8, 50e9)
    job = Job(seq=1024, global_batch=batch, precision=PRECISIONS[precision])
    return estimate(case_of(MODEL, cluster, job, stack), Policies.of([policy]), every_stage=True)


def peak(stack: Stack, policy: Policy, batch: int, precision: str = "bf16-pure") -> float:
    return float(priced(stack, policy, batch, precision).memory.peak[0])


@pytest.mark.parametrize(("policy", "kept"), [
    (Policy(dp=4, zero=0), 1.0), (Policy(dp=1, zero=0), 0.0), (Policy(dp=4, zero=3), 0.0)
])  # fmt: skip
def test_replicas_keep_all_buckets_beside_their_gradients(policy: Policy, kept: float) -> None:
    buckets = peak(PLAIN.changed(keeps_buckets=True), policy, 8) - peak(PLAIN, policy, 8)
    assert buckets == pytest.approx(kept * PARAMETERS * PURE.grad_comm_bytes, rel=0.01)


def test_copies_of_an_update_count_when_activations_are_gone() -> None:
    """They stand beside all gradients, and only what exceeds the activations raises the peak."""
    copying = PLAIN.changed(update_copies=1.0)
    one, small = Policy(dp=1, recompute="full"), 1
    state = PARAMETERS * (PURE.param_bytes + PURE.grad_bytes + 3 * PURE.moment_bytes)
    assert peak(copying, one, small) == pytest.approx(state, rel=0.01)
    assert peak(copying, one, small) > peak(PLAIN, one, small)
    long = Policy(dp=1, micro_batch=32, recompute="none")
    assert peak(copying, long, 32) == peak(PLAIN, long, 32)
    several = Policy(dp=1, recompute="full")
    assert peak(copying, several, 4) > peak(PLAIN, several, 4)


def test_whole_sums_of_gradients_until_the_last_micro_batch() -> None:
    """As long as there are several, and in the dtype that is reduced; the network then carries them once."""
    last = PLAIN.changed(reduces_last="always")
    sharded = Policy(dp=8, zero=3, recompute="full")
    assert peak(last, sharded, 8) == peak(PLAIN, sharded, 8)
    more = peak(last, sharded, 32, "bf16-pure-reduce32") - peak(PLAIN, sharded, 32, "bf16-pure-reduce32")
    assert more == pytest.approx(PARAMETERS * (4 - PURE.grad_bytes / 8), rel=0.01)
    sent = [
        sum(float(m.count[0]) for m in priced(s, sharded, 32).work.parameter_messages if m.op == "reduce_scatter")
        for s in (PLAIN, last)
    ]
    assert sent == [4.0, 1.0]


def test_a_rank_that_gathers_all_logits_holds_all_of_them() -> None:
    gathers = PLAIN.changed(gathers_logits=True)
    cut, whole = (
        float(np.max(priced(s, Policy(dp=1, tp=4, sp=True), 4).memory.kinds["logits"])) for s in (PLAIN, gathers)
    )
    assert whole == pytest.approx(4 * cut)
    alone = Policy(dp=1)
    assert peak(gathers, alone, 1) == peak(PLAIN, alone, 1)
    assert float(priced(gathers, Policy(dp=1, tp=4), 4).times.step_s[0]) > float(
        priced(PLAIN, Policy(dp=1, tp=4), 4).times.step_s[0]
    )


@pytest.mark.parametrize(("says", "vpp", "sent", "whole"), [
    ("never", 1, 16.0, 0.0), ("stages", 1, 1.0, 1.0), ("stages", 4, 1.0, 1.0), ("rounds", 1, 1.0, 1.0),
    ("rounds", 4, 4.0, 0.5),
])  # fmt: skip
def test_with_stages_zero_2_reduces_behind_the_passes_of_a_stage(
    says: str, vpp: int, sent: float, whole: float
) -> None:
    """How often shares leave, and what share of a stage's sums is whole meanwhile."""
    stack = stack_of("torch-fsdp").changed(reduces_last=says)
    schedule = "interleaved" if vpp > 1 else "1f1b"
    found = priced(stack, Policy(dp=4, pp=4, vpp=vpp, zero=2, schedule=schedule), 64, "bf16")
    message = next(m for m in found.work.parameter_messages if m.op == "reduce_scatter")
    assert float(message.count[0]) == sent
    stage = found.work.parameters[0][0] * 4.0
    assert found.memory.kinds["gradients"][0] == pytest.approx(np.maximum(stage * whole, stage / 4))


def test_llama_3_is_predicted_within_a_quarter_of_its_report() -> None:
    """Not by rounds alone: one that reduces each micro-batch takes half as long again."""
    policy = Policy(dp=128, tp=8, pp=16, vpp=8, zero=2, sp=True, schedule="interleaved")
    rounds = stack_of("megatron-core@llama-3")
    job = Job(seq=8192, global_batch=2048)
    cluster = cluster_of("hgx-h100-roce:16384")
    step, naive = (
        float(estimate(case_of(model_of("llama-3.1-405b"), cluster, job, s), Policies.of([policy])).times.step_s[0])
        for s in (rounds, rounds.changed(reduces_last="never"))
    )
    assert step == pytest.approx(6.63, rel=0.25)
    assert naive > 1.3 * step
