"""The end of a step: what the update moves, and the host that launches it tensor by tensor."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_for, stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.update import pieces_updated
from shardwise.step.simulate import simulate
from shardwise.work.case import case_of

CORE = stack_of("megatron-core").changed(ops_per_update=0.0, zeroes_gradients=False)
MODEL = model_of("llama-3-8b")
HELD = 8.03e9


def found(stack: Stack, policy: Policy, precision: str = "bf16-grad16", model: str = "llama-3-8b") -> Estimate:
    job = Job(seq=4096, global_batch=512, precision=precision_of(precision))
    case = case_of(model_of(model), cluster_from("h100", policy.gpus, 8), job, stack)
    return estimate(case, Policies.of([policy]), every_stage=True)


def updating(stack: Stack, policy: Policy, precision: str = "bf16-grad16", model: str = "llama-3-8b") -> float:
    return float(found(stack, policy, precision, model).times.parts["optimizer"][0])


def test_gradients_are_zeroed_over_all_that_a_rank_holds() -> None:
    """However many ranks share the update."""
    for dp in (8, 64):
        policy = Policy(dp=dp, zero=1)
        more = updating(CORE.changed(zeroes_gradients=True), policy) - updating(CORE, policy)
        assert more == pytest.approx(HELD * 2 / 3.35e12, rel=0.2)


def test_narrow_weights_are_made_once_a_step() -> None:
    """16 bits are read and 8 written twice; FSDP's program gathers them narrow already."""
    policy = Policy(dp=64, zero=1)
    more = updating(CORE, policy, "fp8-grad16") - updating(CORE, policy)
    assert more == pytest.approx(HELD * 4 / 3.35e12, rel=0.2)
    wide, narrow = (updating(CORE, policy, name) for name in ("fsdp-mixed-reduce32", "fsdp-fp8-reduce32"))
    assert narrow == wide


def test_a_host_that_launches_piece_by_piece_holds_small_updates_up() -> None:
    stack, policy = CORE.changed(ops_per_update=50.0), Policy(dp=8, zero=1)
    pieces = float(pieces_updated(found(stack, policy).work)[0])
    assert updating(stack, policy) == pytest.approx(pieces * 50.0 * stack.host.host_s_per_op)
    # a few launches run under the update of a rank that owns all
    alone = Policy(dp=8, zero=0)
    assert updating(CORE.changed(ops_per_update=3.0), alone) == updating(CORE, alone)


def test_pieces_follow_tensors_and_buckets() -> None:
    def pieces(policy: Policy, model: str = "llama-3-8b") -> float:
        return float(pieces_updated(found(CORE, policy, model=model).work)[0])

    tensors = pieces(Policy(dp=64, zero=0))
    assert pieces(Policy(dp=16, pp=4, zero=0)) == pytest.approx(tensors / 4)
    # a bucket has 160 MB, and 2 MB for each rank where that is more
    assert pieces(Policy(dp=8, zero=1)) == pytest.approx(np.ceil(HELD * 2 / 160e6) + tensors / 8, abs=1.0)
    assert pieces(Policy(dp=512, zero=1)) == pytest.approx(np.ceil(HELD * 2 / 1024e6) + tensors / 512, abs=1.0)
    few, many = (pieces(Policy(dp=64, ep=ep, zero=0), "qwen3-30b-a3b") for ep in (64, 8))
    assert many > 3 * few


def test_the_simulated_step_ends_alike() -> None:
    policy = Policy(dp=8, pp=4, tp=2, zero=1)
    job, cluster = Job(seq=4096, global_batch=64), cluster_from("h100", 64, 8)
    slow = CORE.changed(ops_per_update=400.0, zeroes_gradients=True)
    cases = [case_of(MODEL, cluster, job, stack) for stack in (slow, CORE)]
    simulated = [simulate(case, policy).step_s for case in cases]
    closed = [float(estimate(case, Policies.of([policy]), every_stage=True).times.step_s[0]) for case in cases]
    gaps = [with_it - without for with_it, without in (simulated, closed)]
    assert gaps[0] > 0.05
    assert gaps[0] == pytest.approx(gaps[1], rel=0.02)


def test_only_the_loop_of_lightning_stands_between_steps() -> None:
    assert stack_for("NeMo (dgxc v25.02.02)").host.step_overhead_s > 0.05
    for text in ("NeMo/Megatron-Bridge 26.06", "Megatron-LM 0.14", "Megatron-Core 0.8", "MLPerf v5.1"):
        assert stack_for(text).host.step_overhead_s == 0.0
