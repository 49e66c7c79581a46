"""A part of the optimizer, or of the layers' activations, in the host's memory."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of
from shardwise.spec.policy import Policies
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import Case

SHARES = (0.001, 0.25, 0.5, 0.75, 1.0)


def _case(cluster: str = "8xh100") -> Case:
    stack = stack_of("megatron-core").changed(zeroes_gradients=False)
    return case_of(model_of("llama-3-8b"), cluster_of(cluster), Job(seq=8192, global_batch=64), stack)


def test_the_optimizer_leaves_in_proportion() -> None:
    none = estimate(_case(), Policies.of([Policy(dp=8)]))
    found = estimate(_case(), Policies.of(Policy(dp=8, offload="optimizer", offload_share=s) for s in SHARES))
    whole = none.memory.kinds["optimizer"][0, 0]
    assert found.memory.kinds["optimizer"][:, 0] == pytest.approx(whole * (1 - np.array(SHARES)))
    assert found.memory.host_bytes == pytest.approx(whole * np.array(SHARES))
    assert (np.diff(found.times.parts["optimizer"][1:]) > 0).all()
    # a thousandth on the host is done before the GPU is with the rest
    assert found.times.parts["optimizer"][0] == pytest.approx(0.999 * none.times.parts["optimizer"][0])


def test_activations_leave_layer_by_layer() -> None:
    kept = estimate(
        _case(), Policies.of(Policy(dp=8, offload="activations", offload_share=s) for s in SHARES)
    ).memory.kinds["activations"][:, 0]  # fmt: skip
    assert (np.diff(kept) < 0).all()


def test_what_recompute_drops_is_not_copied() -> None:
    policies = [Policy(dp=8, offload="activations", recompute=r) for r in ("none", "full")]
    waits = estimate(_case(), Policies.of(policies)).times.parts["offload"]
    assert waits[0] > 0
    assert waits[1] == 0


def test_a_host_on_the_same_package_takes_copies_faster() -> None:
    policy = Policy(dp=8, offload="optimizer")
    pcie, grace = (estimate(_case(c), Policies.of([policy])).times.parts["optimizer"][0] for c in ("8xb200", "8xgb200"))
    assert grace < pcie / 5


def test_a_million_tokens_on_eight_h100() -> None:
    """TRL pull request 6846: Qwen3-8B, FSDP2 and context parallelism over 8 GPUs, checkpointed inputs on the host,
    chunked loss: 56.2 GB."""
    stack = stack_of("hugging-face@trl")
    job = Job(seq=2**20, global_batch=1, precision=stack.precision_for("bf16"))
    case = case_of(model_of("qwen3-8b"), cluster_of("8xh100"), job, stack)
    policy = Policy(cp=8, zero=3, sp=False, recompute="full", offload="activations")
    report = report_of(case, policy)
    assert report.fits
    assert report.peak_bytes / 1e9 == pytest.approx(56.2, rel=0.1)
    plain = report_of(case, Policy(cp=8, zero=3, sp=False, recompute="full", offload="activations", loss="plain"))
    assert not plain.fits


def test_gradients_go_to_the_host_and_weights_come_back() -> None:
    """Four bytes of gradient down and two of weight up for each parameter, at the pace of the slower link."""
    dp, slow = 2, 8e9
    case = _case("2xh100")
    gpu = replace(case.cluster.gpu, pcie_bandwidth=slow)
    slowed = case_of(case.model, replace(case.cluster, gpu=gpu), case.job, case.stack)
    policies = Policies.of([Policy(dp=dp, offload="optimizer")])
    before, after = (estimate(each, policies) for each in (case, slowed))
    owned = after.work.parameters[0].max() / dp
    link = min(case.cluster.gpu.pcie_bandwidth, case.cluster.gpu.host_bandwidth)
    longer = after.times.parts["optimizer"][0] - before.times.parts["optimizer"][0]
    assert longer == pytest.approx(owned * (4 + 2) * (1 / slow - 1 / link))
