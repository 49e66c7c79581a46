"""How programs send what ZeRO shards: tensor by tensor, by owner, through lists, with copies in between."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of, training_of
from shardwise.work.messages import Piece, messages, piecewise
from shardwise.work.parameters import counts_of

PLAIN = stack_of("megatron-core@2021").changed(zero=(0, 1, 2, 3))
SEQ = 2048


def parts(stack: Stack, gpus: int, policy: Policy, model: str = "megatron-175b") -> dict[str, float]:
    cluster = cluster_from(gpu_of("A100-80GB-SXM"), gpus, 8, 25e9)
    job = Job(seq=SEQ, global_batch=gpus, precision=PRECISIONS["fp16"])
    found = estimate(case_of(model_of(model), cluster, job, stack), Policies.of([policy]), every_stage=True)
    return {name: float(np.asarray(seconds)[0]) for name, seconds in found.times.parts.items()}


def sharded(gpus: int, recompute: str = "none") -> Policy:
    return Policy(dp=gpus, zero=3, recompute=recompute, overlap_param=False, overlap_grad=False)


@pytest.mark.parametrize(("least", "number"), [(0.0, 1), (1e5, 4), (3e8, 3)])
def test_every_tensor_above_a_size_is_a_message(least: float, number: int) -> None:
    """Queries, keys and values are one tensor of this model, and all biases are small."""
    stack = PLAIN.changed(gathers_tensors_above=least)
    model = model_of("megatron-175b")
    assert counts_of(model).kinds[0].messages(stack)["dense"] == number
    job = Job(seq=SEQ, global_batch=16, precision=PRECISIONS["fp16"])
    work = piecewise(training_of(model, job, stack), sharded(16))
    sent = [m for m in messages(work, Piece(0, 0, sends_on=False, sends_back=False)) if m.phase == "forward"]
    assert sent[0].count == model.layers * number
    whole = piecewise(training_of(model, job, PLAIN), sharded(16))
    before = [m for m in messages(whole, Piece(0, 0, sends_on=False, sends_back=False)) if m.phase == "forward"]
    assert sum(m.count * m.bytes for m in sent) == pytest.approx(sum(m.count * m.bytes for m in before))


def test_more_messages_wait_longer_the_more_ranks_there_are() -> None:
    by_tensor = PLAIN.changed(gathers_tensors_above=1e5)
    more = [
        parts(by_tensor, gpus, sharded(gpus))["fsdp_comm"] - parts(PLAIN, gpus, sharded(gpus))["fsdp_comm"]
        for gpus in (384, 768, 1536)
    ]
    assert 0.0 < more[0] < more[1] < more[2]


def test_a_list_of_tensors_costs_the_host_for_every_rank() -> None:
    listed = PLAIN.changed(ops_per_peer=2.0)
    extra = parts(listed, 768, sharded(768))["fsdp_comm"] - parts(PLAIN, 768, sharded(768))["fsdp_comm"]
    units = 96 + 2
    assert extra == pytest.approx(units * 3 * 768 * 2.0 * PLAIN.host.host_s_per_op, rel=0.02)


def test_a_long_layer_is_gathered_again_for_its_backward() -> None:
    keeping = PLAIN.changed(reuse_distance=1e9)
    layer = counts_of(model_of("megatron-175b")).kinds[0]
    assert layer.gathered_again(keeping) == pytest.approx(1.0 - 1e9 / (2 * 1.812e9), rel=1e-3)
    assert counts_of(model_of("llama-2-7b")).kinds[0].gathered_again(keeping) == 0.0
    assert layer.gathered_again(PLAIN) == 0.0
    once, again = (parts(stack, 384, sharded(384, "full"))["fsdp_comm"] for stack in (PLAIN, keeping))
    assert 1.15 < again / once < 1.3
    assert parts(keeping, 384, sharded(384))["fsdp_comm"] == parts(PLAIN, 384, sharded(384))["fsdp_comm"]


def test_messages_tell_what_is_gathered_again() -> None:
    model, job = model_of("megatron-175b"), Job(seq=SEQ, global_batch=16, precision=PRECISIONS["fp16"])
    gathered = {}
    for stack in (PLAIN, PLAIN.changed(reuse_distance=1e9)):
        work = piecewise(training_of(model, job, stack), sharded(16, "full"))
        found = messages(work, Piece(0, model.layers, sends_on=False, sends_back=False))
        of_layers = next(m for m in found if (m.op, m.phase) == ("all_gather", "backward"))
        gathered[stack.network.reuse_distance] = of_layers.count
    share = counts_of(model).kinds[0].gathered_again(PLAIN.changed(reuse_distance=1e9))
    assert gathered[1e9] == pytest.approx(gathered[0.0] * (1.0 + share))


def test_copies_around_messages_are_not_hidden() -> None:
    copying = PLAIN.changed(copies_gathered=True)
    policy = Policy(dp=64, zero=3, overlap_param=True)
    plain, copied = (parts(stack, 64, policy, "llama-2-70b")["fsdp_comm"] for stack in (PLAIN, copying))
    # two gathers and a reduction of 16 bits: read and written each
    assert copied - plain == pytest.approx(3 * 4 * 69e9 / (0.87 * 2.039e12), rel=0.1)
    assert parts(copying, 64, Policy(dp=64, zero=1), "llama-2-7b") == parts(
        PLAIN, 64, Policy(dp=64, zero=1), "llama-2-7b"
    )


def test_experts_are_cut_where_ranks_outnumber_them() -> None:
    """Eight experts over 64 ranks along the first dimension: every rank holds, sends and gets a whole one."""
    filling, cutting = (PLAIN.changed(fills_shards=True, cuts_experts=cuts) for cuts in (False, True))
    model, experts = model_of("mixtral-8x7b"), 32 * 8 * 3 * 4096 * 14336
    cluster = cluster_from(gpu_of("H100-80GB-SXM"), 64, 8, 50e9)
    job = Job(seq=SEQ, global_batch=64, precision=PRECISIONS["fp16"])
    held, sent = [], []
    for stack in (PLAIN, cutting, filling):
        case = case_of(model, cluster, job, stack)
        found = estimate(case, Policies.of([sharded(64)]), every_stage=True)
        held.append(float(found.memory.kinds["parameters"].max()))
        work = piecewise(training_of(model, job, stack), sharded(64))
        gathered = messages(work, Piece(0, model.layers, sends_on=False, sends_back=False))
        sent.append(sum(m.count * m.bytes for m in gathered if (m.op, m.phase) == ("all_gather", "forward")))
    assert held[1] == pytest.approx(held[0], rel=1e-3)
    assert held[2] - held[1] == pytest.approx(2 * experts * (1 / 8 - 1 / 64), rel=1e-3)
    assert sent[1] == pytest.approx(sent[0], rel=1e-3)
    assert sent[2] - sent[1] == pytest.approx(2 * experts * 7, rel=1e-3)


def test_owners_send_as_many_messages_as_there_are_tensors() -> None:
    owned = PLAIN.changed(by_owner=True)
    seconds = {}
    for gpus in (64, 256, 1024):
        policy = Policy(dp=gpus, zero=1, overlap_param=False, overlap_grad=False)
        seconds[gpus] = parts(owned, gpus, policy, "llama-2-7b")["param_comm"]
    assert seconds[64] < seconds[256] < seconds[1024]
    # with more ranks than tensors only the way round them grows
    assert seconds[1024] > 2.0 * seconds[256] - seconds[64]


def test_owners_get_the_sum_that_all_others_get() -> None:
    """InternEvo all-reduces: twice the bytes of a reduction that leaves every rank its share."""
    policy = Policy(dp=8, zero=1, overlap_grad=False)
    shares, sums = (
        parts(stack, 8, policy, "llama-2-7b")["grad_comm"] for stack in (PLAIN, PLAIN.changed(by_owner=True))
    )
    assert sums == pytest.approx(2.0 * shares, rel=0.15)
    job = Job(seq=SEQ, global_batch=8, precision=PRECISIONS["fp16"])
    work = piecewise(training_of(model_of("llama-2-7b"), job, PLAIN.changed(by_owner=True)), policy)
    sent = messages(work, Piece(0, 0, sends_on=False, sends_back=False))
    assert [m.op for m in sent if m.axis == "dp"] == ["all_reduce", "broadcast"]


def test_whole_sums_before_a_sharded_step() -> None:
    """DeepSpeed's bf16 optimizer: an all-reduce, then a gather of what each rank updated."""
    policy = Policy(dp=8, zero=1, overlap_grad=False)
    job = Job(seq=SEQ, global_batch=8, precision=PRECISIONS["fp16"])
    work = piecewise(training_of(model_of("llama-2-7b"), job, PLAIN.changed(sums_whole=True)), policy)
    sent = messages(work, Piece(0, 0, sends_on=False, sends_back=False))
    assert [m.op for m in sent if m.axis == "dp"] == ["all_reduce", "all_gather"]


def test_a_program_that_always_shards_its_optimizer() -> None:
    stack, policies = PLAIN.changed(least_zero=1), [Policy(dp=8, zero=zero) for zero in (0, 1, 2)]
    none, first, second = (parts(stack, 8, policy, "llama-2-7b") for policy in policies)
    assert none == first != second
    assert parts(PLAIN, 8, policies[0], "llama-2-7b")["optimizer"] > 5 * none["optimizer"]
