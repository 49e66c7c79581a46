"""Answers printed in the source documents, or corrected where the documents are wrong.

Here: weights of the MNIST network; bytes per parameter of mixed precision; 6TP and 8TP (GPT-3, LLaMA-65B); GPU facts;
critical intensity; node and bisection bandwidth; critical batch per level, for FSDP, with inner sharding
and experts; tensor-parallel bound; DeepSeek-V3's batch; full bisection of the spine.
Elsewhere: parameter counts (tests/arch), GPU and fabric tables (tests/conformance), all-gather times and collective
laws (tests/cost, tests/collectives), switch bytes and bandwidths on the link graph (test_fabric_answers.py), pipeline
idle fractions and the four-GPU example (with the schedules), the Megatron-LM table (validation).
"""

import math

import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import active_parameters, parameters
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.job import PRECISIONS, optimizer_of
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.model import Model
from shardwise.step.estimate.batch import batch_of, data_parallel
from shardwise.step.estimate.mfu import training_flops, utilization
from shardwise.step.estimate.roofline import (
    bisection_bandwidth,
    critical_intensity,
    critical_tokens,
    domain_bandwidth,
    level_bandwidths,
    rooflines,
    shared_memory_bytes,
    tensor_parallel_ways,
    vector_flops,
)

H100_PEAK = 989e12
DAY = 86400.0
CLOSE = 1e-3  # the documents round 989.4 to 989 or 990


def superpod(spine_bandwidth: float) -> Cluster:
    levels = [("node", "nvlink", 8, 450e9), ("leaf", "network", 32, 50e9), ("spine", "network", 4, spine_bandwidth)]
    return Cluster(
        name="superpod", gpu=gpu_of("h100"), gpus=1024,
        levels=tuple(
            Level(name=name, kind=kind, degree=degree, bandwidth=bandwidth, latency_s=1e-6, reduces=True)
            for name, kind, degree, bandwidth in levels
        ),
    )  # fmt: skip


AS_PRINTED = superpod(25e9)
"""the book chapter's fabric: spine switches of 1.6 TB/s"""
CORRECT = superpod(50e9)


class TestModelsMemoryCompute:
    def test_mnist_network(self):
        network = Model(
            name="mnist", family="mlp", hidden=128, vocab=10, kinds=(), pattern=(), norm="none", final_norm=False,
            inputs="features", input_width=784, input_bias=False,
        )  # fmt: skip
        assert parameters(network) == 100_352 + 1_280 == 101_632
        assert parameters(network) * PRECISIONS["fp32"].param_bytes == 406_528

    def test_bytes_per_parameter_of_mixed_precision_adam(self):
        for name in ("bf16-grad16", "fp16"):
            kept, adam = PRECISIONS[name], optimizer_of("adam").rule
            assert kept.param_bytes + kept.grad_bytes == 4
            assert kept.master_bytes + adam.moments * kept.moment_bytes == 12

    def test_the_talks_form_is_all_in_16_bits(self):
        kept = PRECISIONS["bf16-pure"]
        talk = 2 * 4  # 2 (4 P + ...): weights, gradients and two moments of 2 bytes each
        assert kept.param_bytes + kept.grad_bytes + kept.master_bytes + 2 * kept.moment_bytes == talk

    def test_gpt3_by_8tp(self):
        model = model_of("gpt-3-175b")
        for parameter_count, share in ((175e9, 0.435), (float(parameters(model)), 0.434)):
            flops = training_flops(300e9, parameter_count, recompute=True)
            assert utilization(flops, 1024, gpu_of("a100-80").peak("bf16"), 35 * DAY) == pytest.approx(share, abs=5e-4)

    def test_llama_65b_is_not_at_0_3(self):
        peak = gpu_of("a100-80").peak("bf16")
        by_6tp = utilization(training_flops(1.4e12, 65e9), 2048, peak, 21 * DAY)
        by_8tp = utilization(training_flops(1.4e12, 65e9, recompute=True), 2048, peak, 21 * DAY)
        assert by_6tp == pytest.approx(0.47, abs=0.005)
        assert by_8tp == pytest.approx(0.63, abs=0.005)
        from_published_speed = utilization(380 * training_flops(1, 65e9), 1, peak, 1.0)
        assert from_published_speed == pytest.approx(by_6tp, abs=0.01)


class TestGpus:
    def test_h100_vector_units(self):
        h100 = gpu_of("h100")
        assert h100.fp32_cores == 132 * 4 * 32 == 16_896
        assert vector_flops(h100, 1.59e9) == pytest.approx(26.9e12, rel=2e-3)
        assert vector_flops(h100, h100.boost_clock_hz) == pytest.approx(33.5e12, rel=2e-3)

    @pytest.mark.parametrize(("name", "intensity"), [("h100", 295), ("b200", 281)])
    def test_critical_intensity(self, name, intensity):
        assert round(critical_intensity(gpu_of(name))) == intensity

    def test_h100_shared_memory(self):
        assert shared_memory_bytes(gpu_of("h100")) == 33 * 2**20

    def test_b200_is_blackwell_with_148_sms(self):
        b200 = gpu_of("b200")
        assert (b200.architecture, b200.sms) == ("Blackwell", 148)


class TestFabric:
    def test_node_and_bisection_bandwidth(self):
        node = cluster_of("8xh100")
        assert domain_bandwidth(node) == 3.6e12
        assert bisection_bandwidth(node) == 3.6e12

    def test_superpod_spine_has_full_bisection(self):
        node, leaf, spine = rooflines(cluster_of("dgx-h100:1024"))
        assert (node.total_bytes_per_s, leaf.total_bytes_per_s, spine.total_bytes_per_s) == (3.6e12, 12.8e12, 51.2e12)
        assert spine.link_bytes_per_s == 50e9
        assert spine.total_bytes_per_s == 16 * 64 * 50e9  # 16 spines of 64 x 400 Gbps

    def test_mixed_axis_bandwidths(self):
        assert level_bandwidths(AS_PRINTED, 64) == (28.8e12, 3.2e12, 6.4e12)
        assert level_bandwidths(CORRECT, 64) == (28.8e12, 3.2e12, 12.8e12)


class TestCriticalBatch:
    def test_exactly_as_printed(self):
        assert math.floor(critical_tokens(H100_PEAK, 450e9, in_network=True)) == 1098
        assert math.floor(critical_tokens(H100_PEAK, 400e9, in_network=True)) == 1236
        assert math.floor(critical_tokens(H100_PEAK, 400e9, in_network=False)) == 2472
        assert critical_tokens(990e12, 400e9, in_network=False) == pytest.approx(2475)

    def test_superpod_levels(self):
        node, leaf, spine = rooflines(cluster_of("dgx-h100:1024"))
        assert node.dp_sharp_tokens == pytest.approx(1098, rel=CLOSE * 2)
        assert leaf.dp_sharp_tokens == spine.dp_sharp_tokens == pytest.approx(1236, rel=CLOSE)
        assert spine.fsdp_tokens == pytest.approx(2472, rel=CLOSE)
        assert spine.dp_ring_tokens == spine.fsdp_tokens
        assert spine.dp_sharp_practice_tokens == pytest.approx(2472 / 1.3, rel=CLOSE)

    def test_inner_sharding_256_ways(self):
        printed, correct = rooflines(AS_PRINTED, inner=256)[-1], rooflines(CORRECT, inner=256)[-1]
        assert printed.path_bytes_per_s == 6.4e12
        assert round(printed.dp_sharp_tokens or 0) == 77
        assert correct.path_bytes_per_s == 12.8e12
        assert round(correct.dp_sharp_tokens or 0) == 39

    def test_experts(self):
        row = rooflines(cluster_of("dgx-h100:2048"), inner=64, experts=256, active=8)[-1]
        assert row.dp_sharp_tokens == pytest.approx(4944, rel=CLOSE)
        assert (row.dp_sharp_tokens or 0) * 2048 == pytest.approx(10e6, rel=0.02)
        dense = rooflines(cluster_of("dgx-h100:2048"), inner=64)[-1]
        assert row.fsdp_tokens == pytest.approx(dense.fsdp_tokens * 256 / 8)

    @pytest.mark.parametrize("ffn", [16_000, 16_384])
    def test_tensor_parallel_bound_is_8_not_9(self, ffn):
        assert int(tensor_parallel_ways(ffn, 450e9, H100_PEAK)) == 8
        assert tensor_parallel_ways(ffn, 450e9, H100_PEAK) - 1 == pytest.approx(ffn * 450e9 / H100_PEAK)

    def test_deepseek_v3(self):
        step = batch_of(seq=4096, global_batch=15_360)
        assert step.tokens == 62_914_560
        # 64-way experts lie in 8 nodes, times 16 stages and 2 replicas.
        assert 64 * 16 * data_parallel(2048, tp=64, pp=16) == 2048
        assert data_parallel(2048, tp=64, pp=16) == 2
        assert active_parameters(model_of("deepseek-v3")) == pytest.approx(37e9, rel=0.03)
