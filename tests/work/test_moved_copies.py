"""Copies of tokens that PyTorch's own indexing moves to their experts and back, as timed on an H200."""

import json
from pathlib import Path
from statistics import median

import pytest

from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import memory_seconds
from shardwise.spec.arch import model_of
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, known_stack, stack_for, with_words
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of
from shardwise.work.unfused import ATOMIC_ADDS_PER_SM_S, moved_by_indices

TIMED = Path(__file__).resolve().parents[2] / "evidence" / "timed" / "moved-tokens-h200.jsonl"
FLAGS = known_stack("megatron-core@lm")


def step(stack: Stack) -> float:
    case = case_of(model_of("qwen3-30b-a3b"), cluster_of("8xh100"), Job(seq=4096, global_batch=64), stack)
    return float(estimate(case, Policies.of([Policy(dp=8, ep=8, zero=1, micro_batch=4)])).times.step_s[0])


def test_three_ways_of_moving_take_the_same_time() -> None:
    gpu = gpu_of("h200")
    curve, off = curve_of(gpu), []
    for line in TIMED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tokens, top_k, *_, width = row["shape"]
        elements = float(tokens * top_k * width)
        piece, added = moved_by_indices(elements), elements / (gpu.sms * ATOMIC_ADDS_PER_SM_S)
        for moved, took in ((piece.forward_bytes, row["forward_s"]), (piece.backward_bytes, row["backward_s"])):
            off.append((float(memory_seconds(curve, moved)) + added) / took - 1.0)
    assert len(off) == 24
    assert abs(median(off)) < 0.03
    assert sum(abs(each) < 0.2 for each in off) >= 20


def test_a_fused_permutation_is_faster() -> None:
    fused, words = with_words(FLAGS, "grouped GEMM, permute fusion")
    assert words == ("permute fusion",)
    assert step(fused) < step(FLAGS)


def test_tokens_that_are_drawn_alike_fall_on_experts_alike() -> None:
    assert FLAGS.experts.free_router
    drawn, _ = with_words(FLAGS, "mock data")
    assert not drawn.experts.free_router
    assert step(drawn) == step(FLAGS)


@pytest.mark.parametrize("software", ["NeMo/Megatron-Bridge 26.02", "NeMo AutoModel", "Primus (Megatron-LM)"])
def test_programs_that_are_published_with_forced_balance_keep_it(software: str) -> None:
    experts = stack_for(software).experts
    assert not experts.free_router
    assert not experts.second_sort


def test_kernels_of_a_library_do_not_make_it_the_program() -> None:
    assert stack_for("MaxText (JAX, ROCm; Primus-Turbo grouped GEMM, DeepEP)").name == "jax"
    assert stack_for("Primus (Megatron-LM, Primus-Turbo)").name == "primus"
