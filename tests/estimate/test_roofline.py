import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.gpu import Gpu
from shardwise.step.estimate.roofline import (
    critical_tokens,
    level_bandwidths,
    level_sizes,
    rooflines,
    tensor_parallel_ways,
)

GPU = Gpu(
    name="toy", vendor="v", architecture="a", memory_bytes=8e10, memory_bandwidth=3e12,
    peak_flops={"bf16": 9e14, "fp8": 18e14},
    sms=100, l2_bytes=5e7, shared_bytes_per_sm=2.5e5, fp32_cores=12800, base_clock_hz=1e9, boost_clock_hz=2e9,
    power_watts=700, pcie_bandwidth=6e10,
)  # fmt: skip


def tree(gpus: int, *levels: tuple[str, int, float, bool], oversubscription: float = 1.0) -> Cluster:
    return Cluster(
        name="tree", gpu=GPU, gpus=gpus,
        levels=tuple(
            Level(name=name, kind="nvlink" if i == 0 else "network", degree=degree, bandwidth=bandwidth, latency_s=1e-6,
                  reduces=reduces, oversubscription=oversubscription if i else 1.0)
            for i, (name, degree, bandwidth, reduces) in enumerate(levels)
        ),
    )  # fmt: skip


POD = tree(1024, ("node", 8, 450e9, True), ("leaf", 32, 50e9, True), ("spine", 4, 50e9, True))


def test_levels_are_counted_up_to_the_cluster():
    assert level_sizes(POD) == (8, 256, 1024)
    small = tree(16, ("node", 8, 450e9, True), ("leaf", 32, 50e9, True), ("spine", 4, 50e9, True))
    assert level_sizes(small) == (8, 16, 16)
    assert [row.level for row in rooflines(small)] == ["node", "leaf"]


def test_a_level_sees_one_stream_per_gpu_of_its_subtrees():
    assert level_bandwidths(POD) == (450e9, 8 * 50e9, 256 * 50e9)
    assert level_bandwidths(POD, inner=64) == (64 * 450e9, 64 * 50e9, 256 * 50e9)


def test_the_slowest_level_on_the_way_decides():
    node, leaf, spine = rooflines(POD)
    assert (node.path_bytes_per_s, leaf.path_bytes_per_s, spine.path_bytes_per_s) == (450e9, 400e9, 400e9)
    assert spine.level_bytes_per_s == 12.8e12
    assert spine.total_bytes_per_s == 51.2e12


def test_a_level_inside_the_inner_axis_neither_binds_nor_counts():
    # The node level is the slowest here; a 16-way inner axis takes it out of the path.
    slow_node = tree(64, ("node", 8, 1e9, True), ("leaf", 8, 50e9, True))
    assert rooflines(slow_node)[1].path_bytes_per_s == 1e9
    inside, crossed = rooflines(slow_node, inner=16)
    assert (inside.crossed, crossed.crossed) == (False, True)
    assert crossed.path_bytes_per_s == 16 * 50e9


def test_in_network_reduction_needs_every_level_to_reduce():
    mixed = tree(64, ("node", 8, 450e9, True), ("leaf", 8, 50e9, False))
    node, leaf = rooflines(mixed)
    assert node.dp_sharp_tokens is not None
    assert leaf.dp_sharp_tokens is None
    assert leaf.dp_sharp_practice_tokens is None


def test_oversubscription_raises_the_critical_batch():
    levels = (("node", 8, 450e9, True), ("leaf", 8, 50e9, True))
    plain, halved = tree(64, *levels), tree(64, *levels, oversubscription=2.0)
    assert rooflines(halved)[1].fsdp_tokens == pytest.approx(2 * rooflines(plain)[1].fsdp_tokens)


def test_critical_batch_balances_compute_and_traffic():
    parameters, peak, bandwidth = 7e9, 9e14, 4e11
    tokens = critical_tokens(peak, bandwidth, in_network=False)
    backward_s = 4 * parameters * tokens / peak
    reduce_scatter_and_all_gather_s = 2 * 2 * parameters / bandwidth
    assert backward_s == pytest.approx(reduce_scatter_and_all_gather_s)


@given(st.integers(1, 1024), st.integers(1, 64), st.integers(1, 64))
def test_order_of_the_columns(inner, experts, active):
    if active > experts:
        with pytest.raises(ValueError, match="active"):
            rooflines(POD, inner=inner, experts=experts, active=active)
        return
    for row in rooflines(POD, inner=inner, experts=experts, active=active):
        assert row.dp_sharp_tokens is not None
        assert row.dp_sharp_practice_tokens is not None
        assert row.dp_sharp_tokens < row.dp_sharp_practice_tokens < row.dp_ring_tokens == row.fsdp_tokens
        assert row.fsdp_tokens >= experts / active * 9e14 / row.level_bytes_per_s * 0.999


def test_tensor_parallel_bound_balances_compute_and_traffic():
    ffn, bandwidth, peak = 16384, 450e9, 989e12
    ways = tensor_parallel_ways(ffn, bandwidth, peak)
    tokens, hidden = 1000, 4096
    compute_s = 4 * tokens * hidden * ffn / (ways * peak)
    traffic_s = 2 * 2 * tokens * hidden * (ways - 1) / ways / bandwidth
    assert compute_s == pytest.approx(traffic_s)
    assert tensor_parallel_ways(ffn, bandwidth, peak, matrices=3) - 1 == pytest.approx(1.5 * (ways - 1))


@pytest.mark.parametrize("inner", [0, 1025])
def test_inner_must_fit_the_cluster(inner):
    with pytest.raises(ValueError, match="from 1 to 1024"):
        rooflines(POD, inner=inner)
