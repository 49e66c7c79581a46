"""Copies of activations to the host and back: each pass of a piece waits for its own."""

import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import simulate
from shardwise.work.case import Case, case_of

MODEL, CLUSTER = model_of("gpt2-xl"), cluster_of("dgx-h100:8")
JOB, STACK = Job(seq=1024, global_batch=64), stack_of("generic")
STAGED = Policy(dp=2, pp=4, micro_batch=4, offload="activations")


def with_copies(by: float) -> Case:
    gpu = CLUSTER.gpu
    slow = replace(gpu, pcie_bandwidth=gpu.pcie_bandwidth * by, host_bandwidth=gpu.host_bandwidth * by)
    return case_of(MODEL, replace(CLUSTER, gpu=slow), JOB, STACK)


@pytest.mark.parametrize(
    "policy", [STAGED, replace(STAGED, pp=2, dp=4), replace(STAGED, schedule="interleaved", vpp=3)]
)
@pytest.mark.parametrize("by", [0.1, 0.5, 1.0])
def test_stages_wait_as_in_the_simulation(policy: Policy, by: float) -> None:
    case = with_copies(by)
    assert estimate(case, Policies.of([policy])).times.step_s[0] == pytest.approx(
        simulate(case, policy).step_s, rel=0.03
    )


def test_a_forward_and_its_backward_wait_each_for_itself() -> None:
    """A backward computes longer than its forward, so at some speed only the forward waits for its copies."""
    policies, waits = Policies.of([Policy(dp=8, micro_batch=8, offload="activations")]), []
    for by in (0.1, 1.0, 4.0, 8.0, 100.0):
        stage = estimate(with_copies(by), policies).times.micro_batch.stage
        waits.append((float(stage.copied[0, 0]), float(stage.copies[0, 0])))
    assert [whole for _, whole in waits] == sorted((whole for _, whole in waits), reverse=True)
    assert waits[0][1] > waits[0][0] > 0.0
    assert any(forward == whole > 0.0 for forward, whole in waits)
    assert waits[-1] == (0.0, 0.0)
