"""Layers of Megatron-Core that the GPU finishes before the host has launched them, and layers replayed as graphs."""

import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_for, stack_of, with_words
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

JOB = Job(seq=1024, global_batch=8)


def host_seconds(software: str, tp: int) -> float:
    policy = Policy(dp=8 // tp, tp=tp, sp=tp > 1)
    case = case_of(model_of("llama-3-8b"), cluster_of("dgx-h100:8"), JOB, stack_for(software))
    return float(estimate(case, Policies.of([policy])).times.parts["host"][0])


def test_small_layers_wait_for_the_host_unless_they_are_replayed() -> None:
    assert host_seconds("Megatron-Core", 8) > 0.3
    assert host_seconds("Megatron-Core (CUDA graphs)", 8) < 0.01
    assert host_seconds("NeMo/Megatron-Core MLPerf v5.1", 8) < 0.01
    assert host_seconds("Megatron-Core (no CUDA graphs)", 8) == host_seconds("Megatron-Core", 8)


@pytest.mark.parametrize("notes", ["MoE every 2nd layer; CUDA graphs; full attention", "cudagraphs on"])
def test_notes_say_that_layers_are_replayed(notes: str) -> None:
    core = stack_of("megatron-core")
    replayed, said = with_words(core, notes)
    assert said
    mlperf = stack_for("NeMo/Megatron-Core MLPerf v5.1").host
    assert replayed.host.ops_per_layer == mlperf.ops_per_layer < core.host.ops_per_layer
    assert replayed.experts == core.experts


def test_a_layer_with_experts_launches_what_the_fit_found() -> None:
    core, recipes = stack_of("megatron-core"), stack_of("megatron-bridge@26.04")
    assert core.host.ops_per_layer + core.experts.ops_per_expert_layer == 319
    narrow = recipes.experts.narrow_expert_launches * recipes.experts.ops_per_expert_layer_in_node
    # 524 was found with products in eight bits
    assert recipes.host.narrow_launches * recipes.host.ops_per_layer + narrow == pytest.approx(524, rel=0.06)
