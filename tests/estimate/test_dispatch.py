"""Experts by where they lie: what the host launches, what an exchange sends, what latent attention repeats."""

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_from, cluster_of, gpu_of
from shardwise.spec.message import Message
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.spec.software.dispatcher import SETUP_S, beside_another_batch, with_dispatcher
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.dispatch import forwarded_share, layer_operations, once_share
from shardwise.work.case import case_of

NODES = cluster_of("dgx-h100:64")
RACK = cluster_from(gpu_of("gb200"), 144, 4, 50e9)
CORE = stack_of("megatron-core")
JOB = Job(seq=4096, global_batch=512)
EP = np.array([8, 32, 64])
NEAR = np.ones(3, dtype=np.int64)


def priced(model: str, policy: Policy, stack: Stack, **job: Any) -> Estimate:
    case = case_of(model_of(model), NODES, replace(JOB, **job), stack)
    return estimate(case, Policies.of([policy]), every_stage=True)


def exchange(copies: int, experts: int = 64) -> Message[float]:
    return Message("", "all_to_all", "ep", 1.0, 1.0, "forward", copies=float(copies), experts=float(experts))


def test_launches_depend_on_where_experts_lie() -> None:
    stack = CORE.changed(ops_per_expert_layer=3.0, ops_per_expert_layer_in_node=5.0, ops_per_expert_layer_in_rack=1.0)
    assert layer_operations(stack, 2.0, False, NODES, EP, NEAR) == pytest.approx([7.0, 5.0, 5.0])
    # what is replayed as graphs is the dense part too
    assert layer_operations(stack, 2.0, False, RACK, EP, NEAR) == pytest.approx([1.0, 1.0, 1.0])
    # spread out by a stride of 8, a group of 32 leaves the rack of 72 as well
    assert layer_operations(stack, 2.0, False, RACK, EP, 8 * NEAR) == pytest.approx([1.0, 5.0, 5.0])
    plain = stack.changed(ops_per_expert_layer_in_node=-1.0, ops_per_expert_layer_in_rack=-1.0)
    for cluster in (NODES, RACK):
        assert layer_operations(plain, 2.0, False, cluster, EP, NEAR) == pytest.approx(5.0)


def test_products_in_eight_bits_are_scaled_and_cast_by_further_launches() -> None:
    stack = CORE.changed(ops_per_expert_layer_in_node=5.0, narrow_expert_launches=1.7)
    assert layer_operations(stack, 2.0, True, NODES, EP, NEAR) == pytest.approx([10.5, 221.0, 221.0])
    few = [
        priced(
            "qwen3-30b-a3b", Policy(dp=64, ep=8), stack_of("megatron-bridge@26.04"), precision=precision_of(name)
        ).times.step_s[0]
        for name in ("bf16", "fp8")
    ]
    assert few[1] > 1.2 * few[0]


def test_latent_attention_and_shared_experts_launch_more_products() -> None:
    counted = CORE.changed(host_s_per_op=1e-3, ops_per_product=10.0)
    plain = counted.changed(ops_per_product=0.0)
    policy = Policy(dp=64, ep=8)
    steps = {
        name: priced(name, policy, counted).times.step_s[0] - priced(name, policy, plain).times.step_s[0]
        for name in ("qwen3-30b-a3b", "moonlight-16b-a3b")
    }
    assert steps["qwen3-30b-a3b"] == 0.0 < steps["moonlight-16b-a3b"]


def test_a_host_that_reads_token_counts_holds_small_layers_up() -> None:
    policy = Policy(dp=64, ep=8)
    few, many = (
        priced("qwen3-30b-a3b", policy, CORE.changed(ops_per_expert_layer_in_node=ops)).times for ops in (0.0, 2000.0)
    )
    assert few.parts["host"][0] < 0.01 * few.step_s[0]
    layers = model_of("qwen3-30b-a3b").layers
    launched = 3 * 2000.0 * CORE.host.host_s_per_op * layers * JOB.global_batch / 64
    assert many.step_s[0] > launched
    dense = [priced("llama-3-8b", Policy(dp=64), CORE.changed(ops_per_expert_layer_in_node=o)) for o in (0.0, 2000.0)]
    assert dense[0].times.step_s[0] == dense[1].times.step_s[0]


@pytest.mark.parametrize("copies", [1, 2, 3, 8])
def test_a_token_goes_once_to_each_rank_that_has_its_experts(copies: int) -> None:
    """Counted over every way to draw so many of 8 experts, no two the same."""
    ranks, experts = 4, 8
    drawn = list(combinations(range(experts), copies))
    places = sum(len({each // (experts // ranks) for each in one}) for one in drawn) / len(drawn)
    share = once_share(NODES, np.array([ranks]), np.array([1]), exchange(copies, experts), "even")
    assert share[0] == pytest.approx(places / copies)


@pytest.mark.parametrize("copies", [1, 2, 5, 16])
def test_experts_dealt_out_in_order_lie_on_few_ranks(copies: int) -> None:
    """Counted over every expert to begin with; the last place goes over into the first."""
    ranks, experts = 4, 16
    begun = [{(first + each) % experts // (experts // ranks) for each in range(copies)} for first in range(experts)]
    share = once_share(NODES, np.array([ranks]), np.array([1]), exchange(copies, experts), "in_order")
    assert share[0] == pytest.approx(sum(map(len, begun)) / experts / copies)


def test_in_order_between_nodes_counts_nodes() -> None:
    (share,) = once_share(NODES, np.array([64]), np.array([1]), exchange(22, 512), "in_order")
    assert share == pytest.approx((1 + 21 / 64) / 22)


def test_between_nodes_a_token_goes_once_to_each_node() -> None:
    group, token = (np.array([8, 32]), NEAR[:2]), exchange(8)
    reached = [n * (1 - comb(64 - 64 // n, 8) / comb(64, 8)) / 8 for n in (8, 4, 32)]
    assert once_share(NODES, *group, token, "even") == pytest.approx(reached[:2])
    # and is passed on to each rank there that has some
    assert forwarded_share(NODES, *group, token, "even") == pytest.approx([0.0, reached[2]])


def test_a_slow_node_binds_what_is_passed_on_in_it() -> None:
    """NVLink and the network carry an exchange at the same time, so the slower one counts."""
    policy, once = Policy(dp=64, ep=32), CORE.changed(dispatch="once", overlap_ep=0.0)
    model, fast = model_of("qwen3-30b-a3b"), cluster_from(gpu_of("h100"), 64, 8, 50e9)
    wide = cluster_from(gpu_of("h100"), 64, 8, 5000e9)
    seconds = [
        float(estimate(case_of(model, on, JOB, once), Policies.of([policy])).times.parts["ep_comm"][0])
        for on in (fast, wide)
    ]
    copied = priced("qwen3-30b-a3b", Policy(dp=64, ep=8), once).times.parts["ep_comm"][0]
    assert copied < seconds[1] < seconds[0]


def test_who_tells_counts_before_the_first_byte_pays_for_each_exchange() -> None:
    policy, stack = Policy(dp=64, ep=8), CORE.changed(overlap_ep=0.0, host_s_per_op=0.0)
    told = with_dispatcher(stack, "hybridep")
    seconds = [
        priced("qwen3-30b-a3b", policy, each).times.parts["ep_comm"][0]
        for each in (told, told.changed(exchange_setup_s=0.0))
    ]
    exchanges = 4 * model_of("qwen3-30b-a3b").layers * JOB.global_batch / 64
    assert seconds[0] - seconds[1] == pytest.approx(exchanges * SETUP_S)


def test_sending_once_shortens_the_exchange_and_nothing_else() -> None:
    policy = Policy(dp=64, ep=32)
    copies, once = (
        priced("qwen3-30b-a3b", policy, CORE.changed(dispatch=how)).times.parts for how in ("copies", "once")
    )
    assert once["ep_comm"][0] < 0.6 * copies["ep_comm"][0]
    assert once["forward"][0] == copies["forward"][0]
    one_expert = model_of("llama4-maverick")
    alike = [
        estimate(case_of(one_expert, NODES, JOB, CORE.changed(dispatch=how)), Policies.of([policy])).times.step_s[0]
        for how in ("copies", "once")
    ]
    assert alike[0] == alike[1]


def test_selective_recompute_of_latents_repeats_their_up_projections() -> None:
    policy = Policy(dp=8, pp=8, ep=8, recompute="selective")
    up, core = (priced("deepseek-v3", policy, CORE.changed(latent_recompute=what)) for what in ("up", "core"))
    none = priced("deepseek-v3", replace(policy, recompute="none"), CORE)
    assert 0 < up.times.parts["recompute"][0] < core.times.parts["recompute"][0]
    # queries, keys and values are dropped; with a fused kernel the core alone drops nothing
    assert core.memory.peak[0] == none.memory.peak[0]
    assert up.memory.peak[0] < 0.95 * none.memory.peak[0]
    dense = [
        priced("llama-3-8b", Policy(dp=64, recompute="selective"), CORE.changed(latent_recompute=what)).times.step_s[0]
        for what in ("up", "core")
    ]
    assert dense[0] == dense[1]


def test_moments_of_16_bits_take_two_bytes_each() -> None:
    policy = Policy(dp=64)
    found = [
        estimate(
            case_of(model_of("llama-3-8b"), NODES, replace(JOB, precision=precision), CORE), Policies.of([policy])
        ).memory.kinds
        for precision in (precision_of("bf16-grad16"), precision_of("bf16-moments16"))
    ]
    assert found[1]["optimizer"][0, 0] == pytest.approx(found[0]["optimizer"][0, 0] * 8 / 12)
    assert found[1]["parameters"][0, 0] == found[0]["parameters"][0, 0]


def test_dispatchers_send_what_they_say() -> None:
    """Of 128 experts, 8 to a token: copies for all 8, one for each of the ranks that have them, or every token to every
    rank."""
    policy = Policy(dp=64, ep=8)
    stack = CORE.changed(overlap_ep=0.0)
    seconds = {
        name: float(
            priced("qwen3-30b-a3b", policy, with_dispatcher(stack, name).changed(exchange_setup_s=0.0)).times.parts[
                "ep_comm"
            ][0]
        )
        for name in ("alltoall", "flex", "allgather")
    }
    assert seconds["flex"] / seconds["alltoall"] == pytest.approx(1 - comb(112, 8) / comb(128, 8), rel=0.1)
    work = priced("qwen3-30b-a3b", policy, with_dispatcher(stack, "allgather")).work
    sent = [item for item in work.kinds[0].collectives if item.axis == "ep"]
    assert [item.op for item in sent] == ["all_gather", "reduce_scatter"] * 2
    tokens = JOB.seq * policy.micro_batch
    assert {float(np.max(item.bytes)) for item in sent} == {2.0 * tokens * 8 * model_of("qwen3-30b-a3b").hidden}


def test_a_plain_all_to_all_in_a_rack_has_no_graphs() -> None:
    recipes = stack_of("megatron-bridge")
    plain = with_dispatcher(recipes, "alltoall").experts
    assert plain.ops_per_expert_layer_in_rack == -1.0
    assert layer_operations(with_dispatcher(recipes, "alltoall"), 2.0, False, RACK, EP, NEAR) == pytest.approx(
        2.0 + plain.ops_per_expert_layer_in_node
    )
    assert recipes.experts.ops_per_expert_layer_in_rack < recipes.host.ops_per_layer
    assert (
        with_dispatcher(recipes, "flex").experts.ops_per_expert_layer_in_rack
        == recipes.experts.ops_per_expert_layer_in_rack
    )
    assert with_dispatcher(stack_of("megatron-core"), "alltoall") == stack_of("megatron-core")


def test_a_host_counts_for_a_plain_all_to_all_in_a_node() -> None:
    deep = stack_of("megatron-core@dev")
    counted = with_dispatcher(deep, "alltoall").experts
    assert counted.dispatch == "copies"
    assert (
        counted.ops_per_expert_layer_in_node == stack_of("megatron-bridge@26.04").experts.ops_per_expert_layer_in_node
    )
    assert with_dispatcher(deep, "flex") is deep
    assert with_dispatcher(stack_of("megatron-core@flags"), "flex").experts.ops_per_expert_layer_in_node < 0
    with pytest.raises(ValueError, match="dispatcher: 'deep' is unknown; did you mean 'deepep'"):
        with_dispatcher(deep, "deep")


def test_an_exchange_beside_compute_takes_multiprocessors_from_it() -> None:
    policy = Policy(dp=64, ep=8)
    beside = beside_another_batch(CORE)
    left, exposed = (
        priced("qwen3-30b-a3b", policy, each).times.parts["ep_comm"][0]
        for each in (beside, beside.changed(exchange_sms=0.0))
    )
    alone = priced("qwen3-30b-a3b", policy, CORE.changed(overlap_ep=0.0)).times.parts["ep_comm"][0]
    assert left - exposed == pytest.approx((alone - exposed) * beside.experts.exchange_sms / NODES.gpu.sms)
