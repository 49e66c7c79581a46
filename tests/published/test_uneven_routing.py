"""Runs whose router was forced to balance, and the same runs where it dealt tokens out as it liked (yanring/Megatron-
MoE-ModelZoo, best_practice/qwen3/readme.md, long context): Qwen3-235B on 256 H100, TFLOP/s of both."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.band import band_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of
from shardwise.work.experts import fullest_share

UNEVEN = 1.6
"""tokens of the fullest of 8 expert ranks over the mean"""
PAIRS = [(16_384, 1, 295, 237), (32_768, 2, 335, 277), (65_536, 4, 368, 320), (131_072, 8, 389, 357)]


@pytest.mark.parametrize(("seq", "cp", "forced", "free"), PAIRS)
def test_one_factor_tells_four_pairs_of_runs_apart(seq: int, cp: int, forced: int, free: int) -> None:
    policy = Policy(
        dp=8 // cp, tp=4, sp=True, pp=8, vpp=4, cp=cp, ep=8, zero=1,
        recompute="selective", recompute_modules=("layernorm", "moe"),
    )  # fmt: skip
    job = Job(seq=seq, global_batch=256)
    even = stack_of("megatron-core@dev")
    uneven = even.changed(expert_imbalance=UNEVEN)
    steps = [
        float(estimate(case_of(model_of("qwen3-235b-a22b"), cluster_of("dgx-h100:256"), job, stack),
                       Policies.of([policy])).times.step_s[0])
        for stack in (even, uneven)
    ]  # fmt: skip
    assert steps[1] / steps[0] == pytest.approx(forced / free, rel=0.01)


def test_the_band_reaches_to_such_runs() -> None:
    """Nothing forces the balance of a program by its flags: predicted even, its band holds the four on average."""
    job, cluster, model = Job(seq=16_384, global_batch=256), cluster_of("dgx-h100:256"), model_of("qwen3-235b-a22b")
    free = stack_of("megatron-core@flags")
    ends = [
        band.high
        for stack in (free, free.changed(free_router=False))
        if (band := band_of(case_of(model, cluster, job, stack))) is not None
    ]
    slower = np.mean([np.log(forced / unforced) for *_, forced, unforced in PAIRS])
    assert np.log1p(ends[0]) ** 2 - np.log1p(ends[1]) ** 2 > 0.9 * slower**2


@pytest.mark.parametrize(("ranks", "share"), [(1, 1.0), (2, 1.5), (64, 1.5)])
def test_no_rank_has_more_than_all(ranks: int, share: float) -> None:
    assert float(fullest_share(stack_of("generic").changed(expert_imbalance=1.5), float(ranks))) == share
