"""Runs whose router was forced to balance, and the same runs where it dealt tokens out as it liked (yanring/Megatron-
MoE-ModelZoo, best_practice/qwen3/readme.md, long context): Qwen3-235B on 256 H100, TFLOP/s of both."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of
from shardwise.work.experts import fullest_share

UNEVEN = stack_of("torch-fsdp")
PAIRS = [(16_384, 1, 295, 237), (32_768, 2, 335, 277), (65_536, 4, 368, 320), (131_072, 8, 389, 357)]


@pytest.mark.parametrize(("seq", "cp", "forced", "free"), PAIRS)
def test_one_factor_tells_four_pairs_of_runs_apart(seq: int, cp: int, forced: int, free: int) -> None:
    policy = Policy(
        dp=8 // cp, tp=4, sp=True, pp=8, vpp=4, cp=cp, ep=8, zero=1,
        recompute="selective", recompute_modules=("layernorm", "moe"),
    )  # fmt: skip
    job = Job(seq=seq, global_batch=256)
    even = stack_of("megatron-core@dev")
    uneven = even.changed(expert_imbalance=UNEVEN.experts.expert_imbalance)
    steps = [
        float(estimate(case_of(model_of("qwen3-235b-a22b"), cluster_of("dgx-h100:256"), job, stack),
                       Policies.of([policy])).times.step_s[0])
        for stack in (even, uneven)
    ]  # fmt: skip
    assert steps[1] / steps[0] == pytest.approx(forced / free, rel=0.01)


def test_fewer_ranks_average_over_more_experts() -> None:
    ranks = np.array([1, 2, 4, 8, 64])
    shares = np.asarray(fullest_share(UNEVEN, ranks))
    assert shares[0] == 1.0
    assert (np.diff(shares[:4]) > 0).all()
    assert shares[3] == shares[4] == UNEVEN.experts.expert_imbalance
    assert shares[1] == pytest.approx(1.123, abs=0.001)
    stated = UNEVEN.changed(expert_imbalance=1.5, imbalance_ranks=0)
    np.testing.assert_allclose(np.asarray(fullest_share(stated, ranks)), [1.0, 1.5, 1.5, 1.5, 1.5])
