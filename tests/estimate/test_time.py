"""Composition in time: parts add up, laws of scaling, what overlap may and may not do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shardwise.plugins.optimizers import optimizer_names
from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job, optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import legal
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

LLAMA = model_of("llama-3-8b")
CLUSTER = cluster_of("dgx-h100:64")
JOB = Job(seq=8192, global_batch=256)
CORE = stack_of("megatron-core")


def one(policy: Policy, job: Job = JOB, stack: str = "megatron-core", model: str = "llama-3-8b") -> Estimate:
    return estimate(case_of(model_of(model), CLUSTER, job, stack_of(stack)), Policies.of([policy]), every_stage=True)


POLICIES = [
    Policy(dp=64),
    Policy(dp=64, zero=3),
    Policy(dp=8, tp=8),
    Policy(dp=8, tp=4, pp=2, recompute="full"),
    Policy(dp=4, tp=2, pp=4, cp=2, recompute="selective", attention="plain"),
    Policy(dp=8, pp=8, vpp=4, schedule="interleaved"),
    Policy(dp=64, zero=3, shard_group=8, offload="both"),
    Policy(dp=16, tp=4, zero=0, sp=False, schedule="gpipe"),
]


@pytest.mark.parametrize("stack", ["megatron-core", "nanotron", "torchtitan", "llm-foundry", "megatron-core@2021"])
@pytest.mark.parametrize("policy", POLICIES)
def test_parts_add_up_and_nothing_is_negative(policy: Policy, stack: str) -> None:
    times = one(policy, stack=stack).times
    assert all((value >= 0).all() and np.isfinite(value).all() for value in times.parts.values())
    assert all((value >= 0).all() for value in times.hidden.values())
    assert sum(v[0] for v in times.parts.values()) == pytest.approx(times.step_s[0], rel=1e-12)


def test_array_result_is_the_scalar_result() -> None:
    together = estimate(case_of(LLAMA, CLUSTER, JOB, CORE), Policies.of(POLICIES))
    for i, policy in enumerate(POLICIES):
        alone = estimate(case_of(LLAMA, CLUSTER, JOB, CORE), Policies.of([policy]))
        assert together.times.step_s[i] == pytest.approx(alone.times.step_s[0], rel=1e-12)
        assert together.memory.peak[i] == pytest.approx(alone.memory.peak[0], rel=1e-12)
        for name, value in together.times.parts.items():
            assert value[i] == pytest.approx(alone.times.parts[name][0], rel=1e-9, abs=1e-15)


def test_the_evaluated_stages_find_the_slowest_and_fullest_of_all() -> None:
    job = Job(seq=4096, global_batch=512)
    rows = [Policy(dp=64 // (tp * pp), tp=tp, pp=pp) for tp in (1, 2, 8) for pp in (1, 2, 4, 8)]
    some = estimate(case_of(LLAMA, CLUSTER, job, CORE), Policies.of(rows))
    every = estimate(case_of(LLAMA, CLUSTER, job, CORE), Policies.of(rows), every_stage=True)
    assert np.allclose(some.times.step_s, every.times.step_s, rtol=1e-12)
    assert np.allclose(some.memory.peak, every.memory.peak, rtol=1e-12)


def test_bubble_of_an_even_pipeline() -> None:
    """With the ends negligible the idle time is (N-1)/m of the busy time."""
    model = replace(LLAMA, vocab=8)
    stack = CORE.changed(host_s_per_op=0.0)
    result = estimate(case_of(model, CLUSTER, JOB, stack), Policies.of([Policy(dp=8, pp=8, overlap_pp=False)]))
    busy = sum(result.times.parts[n][0] for n in ("forward", "backward", "pp_comm"))
    micro_batches = JOB.global_batch / 8
    assert result.times.parts["bubble"][0] / busy == pytest.approx(7 / micro_batches, rel=0.01)


def test_overlap_never_costs_more_than_it_hides() -> None:
    for base in (Policy(dp=64, zero=0), Policy(dp=8, tp=8), Policy(dp=64, zero=3)):
        off = {"overlap_grad": False, "overlap_param": False, "overlap_tp": False, "overlap_pp": False}
        on = dict.fromkeys(off, True)
        slow, fast = one(replace(base, **off)), one(replace(base, **on))
        assert fast.times.step_s[0] <= slow.times.step_s[0]
        assert sum(v[0] for v in fast.times.hidden.values()) > 0


def test_recompute_costs_time_and_saves_memory() -> None:
    steps = [one(Policy(dp=16, tp=4, recompute=r)) for r in ("none", "selective", "full")]
    assert steps[0].times.step_s[0] < steps[1].times.step_s[0] < steps[2].times.step_s[0]
    assert steps[0].memory.peak[0] > steps[2].memory.peak[0]
    partly = one(Policy(dp=16, tp=4, recompute="full", recompute_layers=16))
    assert steps[0].times.step_s[0] < partly.times.step_s[0] < steps[2].times.step_s[0]
    assert steps[2].memory.peak[0] < partly.memory.peak[0] < steps[0].memory.peak[0]


def test_faster_hardware_is_never_slower() -> None:
    gpu = CLUSTER.gpu
    faster = replace(
        CLUSTER,
        gpu=replace(
            gpu, peak_flops={k: 2 * v for k, v in gpu.peak_flops.items()}, memory_bandwidth=2 * gpu.memory_bandwidth
        ),
        levels=tuple(replace(level, bandwidth=2 * level.bandwidth) for level in CLUSTER.levels),
    )
    columns = Policies.of(POLICIES)
    assert (
        estimate(case_of(LLAMA, faster, JOB, CORE), columns).times.step_s
        < estimate(case_of(LLAMA, CLUSTER, JOB, CORE), columns).times.step_s
    ).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_more_tokens_take_longer(zero: int, tp: int, pp: int, micro: int) -> None:
    policy = Policy(dp=64 // (tp * pp), tp=tp, pp=pp, zero=zero, micro_batch=micro)
    if not legal(LLAMA, CLUSTER, JOB, Policies.of([policy]))[0]:
        return
    double = Job(seq=JOB.seq, global_batch=2 * JOB.global_batch)
    assert one(policy, double).times.step_s[0] > one(policy).times.step_s[0]


@pytest.mark.parametrize("name", PRECISIONS)
def test_every_precision_runs(name: str) -> None:
    result = one(Policy(dp=8, tp=8), Job(seq=4096, global_batch=64, precision=PRECISIONS[name]))
    assert 0 < result.times.step_s[0] < 1e4


def test_lower_precision_is_faster() -> None:
    steps = {
        n: one(Policy(dp=64), Job(seq=8192, global_batch=256, precision=PRECISIONS[n])).times.step_s[0]
        for n in ("fp8", "bf16", "fp32")
    }
    assert steps["fp8"] < steps["bf16"] < steps["fp32"]


@pytest.mark.parametrize("name", optimizer_names())
def test_every_optimizer_runs_and_takes_its_memory(name: str) -> None:
    job = Job(seq=8192, global_batch=256, optimizer=optimizer_of(name))
    adam, other = (one(Policy(dp=64), each).memory.kinds["optimizer"].max() for each in (JOB, job))
    # preconditioners of a matrix lie beside its moments
    assert (other > adam) == (name in ("shampoo", "soap"))


@pytest.mark.parametrize(
    "model", ["mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "qwen3-30b-a3b", "llama-4-maverick", "gemma-2-9b"]
)
def test_other_architectures(model: str) -> None:
    experts = any(kind.experts for kind in model_of(model).kinds)
    policy = Policy(dp=32, tp=2, ep=8 if experts else 1)
    result = one(policy, model=model)
    assert result.times.step_s[0] > 0
    assert (result.times.parts["ep_comm"][0] > 0) == experts


def test_a_fuller_expert_rank_holds_everyone_up() -> None:
    policies = Policies.of([Policy(dp=64, ep=8)])
    model = model_of("mixtral-8x7b")
    even, uneven = (
        estimate(case_of(model, CLUSTER, JOB, CORE.changed(expert_imbalance=factor)), policies).times.parts
        for factor in (1.0, 1.5)
    )
    assert uneven["ep_comm"][0] > 1.3 * even["ep_comm"][0]
    assert uneven["forward"][0] > even["forward"][0]


def test_selective_recompute_repeats_what_the_stack_says() -> None:
    policy = Policy(dp=64, recompute="selective")
    stack = CORE.changed(selective_attention=0.0, selective_repeat=0.0)
    nothing = estimate(case_of(LLAMA, CLUSTER, JOB, stack), Policies.of([policy])).times.parts
    assert nothing["recompute"][0] == 0
    core = estimate(case_of(LLAMA, CLUSTER, JOB, CORE), Policies.of([policy])).times.parts["recompute"][0]
    half = stack.changed(selective_repeat=0.5)
    rest = estimate(case_of(LLAMA, CLUSTER, JOB, half), Policies.of([policy])).times.parts["recompute"][0]
    whole = one(replace(policy, recompute="full")).times.parts["recompute"][0]
    assert core + 2 * rest == pytest.approx(whole, rel=1e-9)


def test_expert_exchange_hides_by_where_it_goes() -> None:
    stack = CORE.changed(overlap_ep=0.9, overlap_ep_between_nodes=0.1)
    policies = Policies.of([Policy(dp=64, ep=8), Policy(dp=64, ep=16)])
    job = Job(seq=4096, global_batch=512)
    times = estimate(case_of(model_of("qwen3-30b-a3b"), CLUSTER, job, stack), policies).times
    shares = times.hidden["ep"] / (times.hidden["ep"] + times.parts["ep_comm"])
    assert shares == pytest.approx([0.9, 0.1])


def _gathers_hidden(ep: int, *, one_collective: bool) -> float:
    """Share of what ZeRO 3 gathers between slow nodes that hides, beside a long exchange."""
    stack = CORE.changed(overlap_ep=0.0, gathers_hidden=1.0, one_collective=one_collective)
    cluster = cluster_of("dgx-h100:64")
    levels = tuple(replace(level, bandwidth=level.bandwidth / 50.0) for level in cluster.levels)
    case = case_of(model_of("qwen3-30b-a3b"), replace(cluster, levels=levels), Job(seq=4096, global_batch=64), stack)
    times = estimate(case, Policies.of([Policy(dp=64, ep=ep, zero=3)])).times
    exposed, hidden = times.parts["fsdp_comm"][0], times.hidden["fsdp"][0]
    return float(hidden / (exposed + hidden))


def test_gathers_do_not_hide_under_an_exchange_on_the_same_cards() -> None:
    """Experts on one node are exchanged over its own links, those of two nodes over the cards that gathers use."""
    near, far = (_gathers_hidden(ep, one_collective=False) for ep in (8, 64))
    assert _gathers_hidden(8, one_collective=True) < near
    assert _gathers_hidden(64, one_collective=True) == pytest.approx(far, rel=1e-12)


def test_gathers_of_zero_3_hide_as_the_stack_says() -> None:
    policies, exposed = Policies.of([Policy(dp=64, zero=3), Policy(dp=64, zero=1)]), []
    for share in (-1.0, CORE.overlap.hidden_share, 0.9):
        parts = estimate(case_of(LLAMA, CLUSTER, JOB, CORE.changed(gathers_hidden=share)), policies).times.parts
        exposed.append(parts["fsdp_comm"][0])
        assert parts["fsdp_comm"][1] == 0
    assert exposed[0] == exposed[1] > exposed[2] > 0
