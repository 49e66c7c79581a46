"""Worked answers of the textbook bandwidth law."""

import pytest

from shardwise.cost.ideal import ideal_bandwidths, ideal_seconds
from shardwise.spec.cluster import Level

NODE = Level(name="node", kind="nvlink", degree=8, bandwidth=450e9, latency_s=0.0, reduces=True)
LEAF = Level(name="leaf", kind="network", degree=32, bandwidth=50e9, latency_s=0.0, reduces=True)
SPINE = Level(name="spine", kind="network", degree=4, bandwidth=50e9, latency_s=0.0, reduces=True)
SPINE_AS_PRINTED = Level(name="spine", kind="network", degree=4, bandwidth=25.6e12 / 1024, latency_s=0.0)


def test_all_gather_of_33_mb_on_one_node_takes_65_us_not_9():
    assert ideal_seconds("all_gather", 33.5e6, [NODE]) == pytest.approx(65.1e-6, rel=1e-3)
    assert ideal_seconds("reduce_scatter", 33.5e6, [NODE]) == ideal_seconds("all_gather", 33.5e6, [NODE])


def test_node_bandwidth():
    assert NODE.degree * NODE.bandwidth == pytest.approx(3.6e12)


def test_all_reduce_is_twice_or_bytes_over_bandwidth_with_reduction():
    assert ideal_seconds("all_reduce", 1e9, [NODE]) == pytest.approx(2 * 1e9 * 7 / 8 / 450e9)
    assert ideal_seconds("all_reduce", 1e9, [NODE], sharp=True) == pytest.approx(1e9 / 450e9)
    assert ideal_seconds("all_reduce", 1e9, [NODE, LEAF], sharp=True) == pytest.approx(1e9 / 400e9)


def test_mixed_axis_example_with_64_inner_ranks():
    found = ideal_bandwidths([NODE, LEAF, SPINE_AS_PRINTED], inner=64)
    assert found == pytest.approx([28.8e12, 3.2e12, 6.4e12])


def test_256_inner_ranks_as_printed_and_with_the_right_spine():
    assert ideal_bandwidths([NODE, LEAF, SPINE_AS_PRINTED], inner=256)[2] == pytest.approx(6.4e12)
    assert ideal_bandwidths([NODE, LEAF, SPINE], inner=256)[2] == pytest.approx(12.8e12)


def test_all_to_all_in_a_node_and_over_nodes():
    assert ideal_seconds("all_to_all", 1e9, [NODE]) == pytest.approx(1e9 * 7 / (64 * 450e9))
    assert ideal_seconds("all_to_all", 1e9, [NODE, LEAF]) == pytest.approx(1e9 * 31 / (32**2 * 400e9))


def test_slowest_level_binds():
    assert ideal_seconds("all_gather", 1e9, [NODE, LEAF]) == pytest.approx(1e9 * 31 / 32 / 400e9)


def test_unknown_operation():
    with pytest.raises(ValueError, match="no textbook law"):
        ideal_seconds("send", 1.0, [NODE])
