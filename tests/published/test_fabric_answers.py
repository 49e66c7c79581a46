"""Answers of the source documents about networks, from the link graph: no formula of their own."""

import numpy as np
import pytest

from shardwise.fabric import tree_of
from shardwise.fabric.links import Routed
from shardwise.fabric.phases import Messages, messages_of
from shardwise.fabric.solver import finish_times
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.load import cluster_of, gpu_of

RESNET_50_BYTES = 4 * 25.5e6


def seconds_of(messages: Messages, fabric: Routed, size: float) -> float:
    return float(finish_times(messages.flows(fabric), fabric.links.capacity).max()) * size


class TestBandwidths:
    def test_node_leaf_and_spine_of_a_superpod(self):
        tree = tree_of(cluster_of("dgx-h100:1024"))
        links = tree.links

        def out(tier):
            """bytes/s into a tier: half of its links lead up"""
            return links.capacity[links.tier == tier].sum() / 2

        assert out(0) / 128 == 3.6e12
        assert out(1) / 4 == 12.8e12
        assert out(2) == 51.2e12

    def test_bisection_of_a_node_is_what_half_of_it_sends_both_ways(self):
        tree = tree_of(cluster_of("8xh100"))
        half = np.arange(4)
        messages = [messages_of("send", "send", np.stack([half, half + 4], axis=1), tree, 8)]
        # every GPU of one half to one of the other, and back, at line rate
        assert 8 / seconds_of(messages[0], tree, 1.0) == pytest.approx(3.6e12)


class TestGatherTimes:
    def test_33_megabytes_in_a_node_take_65_microseconds(self):
        tree = tree_of(cluster_of("8xh100"))
        gather = messages_of("ring", "all_gather", np.arange(8)[None], tree, 8)
        assert seconds_of(gather, tree, 33.5e6) == pytest.approx(65e-6, rel=0.01)

    def test_levels_of_a_tree_bind_where_the_formula_says(self):
        """B max_i (D_i - 1) / (D_i W_i): the leaf level of a unit, 400 GB/s out of each of 32 nodes."""
        tree = tree_of(cluster_of("dgx-h100:256"))
        gather = messages_of("two_level", "all_gather", np.arange(256)[None], tree, 8)
        assert seconds_of(gather, tree, 1.0) == pytest.approx(max(31 / 32 / 400e9, 7 / 8 / 450e9))

    def test_all_to_all_over_nodes(self):
        """B (M - 1) / (M W_node) for B on each GPU of M nodes, by what leaves a card."""
        tree = tree_of(cluster_of("dgx-h100:64"))
        exchange = messages_of("pairwise", "all_to_all", np.arange(64)[None], tree, 8)
        assert seconds_of(exchange, tree, 1.0) == pytest.approx(7 / 8 / 50e9)

    def test_all_reduce_is_twice_a_gather(self):
        tree = tree_of(cluster_of("dgx-h100:64"))
        ring = [messages_of("ring", op, np.arange(64)[None], tree, 8) for op in ("all_reduce", "all_gather")]
        assert seconds_of(ring[0], tree, 1.0) == pytest.approx(2 * seconds_of(ring[1], tree, 1.0))


@pytest.mark.parametrize("node_gbps", [10, 25, 100])
def test_ring_against_partial_averaging_of_resnet_50_on_256_gpus(node_gbps):
    """Measured: 278 ms against 150 ms, 1.85 times. 32 nodes of 8 V100; a node averages inside, then each of its GPUs
    exchanges its part with one other node (one-peer), while the ring passes everything twice."""
    card = node_gbps * 1e9 / 8 / 8
    levels = (
        Level(name="node", kind="nvlink", degree=8, bandwidth=150e9, latency_s=0.0),
        Level(name="leaf", kind="network", degree=32, bandwidth=card, latency_s=0.0),
    )
    tree = tree_of(Cluster(name="talk", gpu=gpu_of("v100"), gpus=256, levels=levels))
    everyone, nodes = np.arange(256)[None], np.arange(256).reshape(32, 8)
    ring = seconds_of(messages_of("ring", "all_reduce", everyone, tree, 8), tree, RESNET_50_BYTES)
    inside = seconds_of(messages_of("ring", "all_reduce", nodes, tree, 8), tree, RESNET_50_BYTES)
    across = seconds_of(messages_of("send", "send", nodes.T, tree, 8), tree, RESNET_50_BYTES / 8)
    assert 1.7 <= ring / (inside + across) <= 2.0
