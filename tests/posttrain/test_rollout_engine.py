"""What an engine holds and how long its steps take, against sums by hand and bounds of the hardware."""

import numpy as np
import pytest

from shardwise.cost.decode import DecodeLaw, all_reduce_seconds, attention_seconds, decode_law, experts_seconds
from shardwise.spec.arch import model_of
from shardwise.spec.hardware import gpu_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import known_stack
from shardwise.step.posttrain.engine import RolloutEngine, shard_bytes
from shardwise.step.posttrain.facts import TransferFacts, facts
from shardwise.step.posttrain.transfer import Senders, expert_matrices, expert_parameters, transfer_seconds
from shardwise.work.case import driven_network

H100 = gpu_of("h100")
LAW = DecodeLaw(
    attention_floor_s=0, attention_reach=1, attention_head_s=0, attention_split_s=0, experts_floor_s=0,
    experts_reach=1, experts_spread=1, experts_rate=1, experts_rows=0, experts_slice=0, reduce_floor_s=0,
    reduce_rank_s=0, reduce_reach=1,
)  # fmt: skip


def engine(model: str, on: str, tp: int, precision: str = "bf16") -> RolloutEngine:
    cluster = cluster_of(on)
    network = driven_network(cluster, known_stack("megatron-core"))
    return RolloutEngine(model_of(model), cluster, network, facts().engines["vllm"], tp, precision)


def test_bare_laws_are_bytes_over_bandwidth():
    # 32 sequences of 1,000 tokens, 8 key heads of 128 channels: keys and values of two bytes
    read = 32 * 1000 * 8 * 128 * 2 * 2
    assert attention_seconds(H100, LAW, 32.0, 1000.0, 64.0, 8.0, 128.0) == pytest.approx(read / 3.35e12)
    # so many tokens that every one of 8 experts is met: all their weights are read
    weights = 8 * 3 * 2048 * 512 * 2
    met = experts_seconds(H100, LAW, 200.0, 2048.0, 512.0, 2.0, 8.0)
    flops = 2 * 3 * 2048 * 512 * 400
    assert met == pytest.approx(np.hypot(weights / 3.35e12, flops / 989.4e12), rel=1e-6)
    # one token meets as many experts as it chooses
    one = experts_seconds(H100, LAW, 1.0, 2048.0, 512.0, 2.0, 8.0)
    assert one == pytest.approx(2 * 3 * 2048 * 512 * 2 / 3.35e12, rel=0.01)
    assert all_reduce_seconds(H100, LAW, 1e6, 8.0) == pytest.approx(2 * 7 / 8 * 1e6 / 450e9)


def test_a_gpu_without_a_table_takes_the_nearest_chips():
    assert decode_law("h200")[1] == "h200"
    assert decode_law("l40s")[1] == "h100"


def test_llama_8b_holds_its_weights_and_a_cache_by_hand():
    one, two = engine("llama-3.1-8b", "8xh100", 1), engine("llama-3.1-8b", "8xh100", 2)
    assert one.weights_bytes == shard_bytes(one.model) == pytest.approx(2 * 8.03e9, rel=1e-3)
    assert two.weights_bytes == pytest.approx(one.weights_bytes / 2, rel=1e-3)
    # 32 layers, 8 key and value heads of 128, two bytes
    assert one.token_bytes == 32 * 2 * 8 * 128 * 2
    assert two.token_bytes == one.token_bytes / 2
    # more ranks than key heads hold copies
    assert engine("llama-3.1-8b", "2x8xh100", 16).token_bytes == one.token_bytes / 8
    room = 0.8 * H100.memory_bytes - one.weights_bytes - one.facts.reserve_bytes
    assert one.sequences(0.8, 4096) == int(room / (4096 * one.token_bytes))


def test_a_latent_cache_is_not_cut():
    assert engine("deepseek-v3", "4x8xh100", 32).token_bytes == 61 * (512 + 64) * 2


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_a_decode_step_is_no_faster_than_memory_and_grows(model):
    found = engine(model, "8xh100", 1)
    times = found.decode_seconds(np.array([1.0, 64.0, 256.0]), np.array([1000.0] * 3))
    assert np.all(np.diff(times) > 0)
    least = 0.2 * found.weights_bytes if model.startswith("qwen3") else found.weights_bytes
    assert times[2] > least / H100.memory_bandwidth
    longer = found.decode_seconds(np.array([64.0]), np.array([8000.0]))
    assert longer[0] > times[1]
    # the longer caches cost what reading them takes, within what the law reaches
    assert longer[0] - times[1] == pytest.approx(64 * 7000 * found.token_bytes / 3.35e12, rel=0.25)


def test_a_transfer_is_its_law():
    found = engine("qwen3-30b-a3b", "8xh100", 4)
    assert expert_matrices(found.model) == 48 * 128 * 3
    path = TransferFacts(fixed_s=1.0, rate=1e10, gpu_rate=2e10, expert_s=1e-3, source="")
    by_hand = 1.0 + shard_bytes(found.model) / 1e10 + found.weights_bytes / 2e10 + 48 * 128 * 3 * 1e-3
    assert transfer_seconds(path, found, Senders(8)) == pytest.approx(by_hand)


def test_weights_that_wait_on_the_host_come_back_first_and_experts_kept_apart_pass_once():
    found = engine("qwen3-30b-a3b", "8xh100", 4)
    path = TransferFacts(fixed_s=1.0, rate=1e10, expert_s=1e-3, host_rate=2e9, shared_experts=True, source="")
    experts, whole = expert_parameters(found.model), shard_bytes(found.model)
    assert experts == 48 * 128 * 3 * 768 * 2048
    by_hand = 1.0 + 2.0 * whole / 8 / 2e9 + (whole - 7 / 8 * experts * 2) / 1e10
    assert transfer_seconds(path, found, Senders(8, True, 8)) == pytest.approx(by_hand)


def test_a_recurrence_keeps_one_state_a_sequence():
    found = engine("qwen3.5-35b-a3b", "8xh100", 2)
    assert found.state_bytes == 30 * 4 * 32 * 128 * 128 / 2
    cached = found.token_bytes * 4000
    assert found.sequences(0.7, 4000) == int(found.room(0.7) / (cached + found.state_bytes))
    times = found.decode_seconds(np.array([64.0, 64.0]), np.array([1000.0, 9000.0]))
    # only one layer of four reads a longer cache
    assert times[1] - times[0] == pytest.approx(64 * 8000 * found.token_bytes / 3.35e12, rel=0.3)
