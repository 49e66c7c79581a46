"""Answers of the source documents about networks, from the link graph: no formula of their own."""

import math

import numpy as np
import pytest

from shardwise.fabric import tree_of
from shardwise.fabric.broken import slowed
from shardwise.fabric.graph import Graph
from shardwise.fabric.graph_file import graph_from_yaml
from shardwise.fabric.links import RoutedFabric
from shardwise.fabric.phases import Messages, messages_of, passed_on
from shardwise.fabric.solver import finish_times
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.step.estimate.roofline import critical_tokens

RESNET_50_BYTES = 4 * 25.5e6


def seconds_of(messages: Messages, fabric: RoutedFabric, size: float) -> float:
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
        swapped = passed_on(np.concatenate([half, half + 4]), np.concatenate([half + 4, half]))
        # every GPU of one half to one of the other, and back, at line rate
        assert 8 / seconds_of(swapped, tree, 1.0) == pytest.approx(3.6e12)

    def test_what_64_way_sharding_may_use_of_each_level(self):
        """28.8, 3.2 and 6.4 TB/s: all that 64 GPUs send into their nodes' switches and their leaves, and the way up of
        their unit, by the source's spines of 1.6 TB/s."""
        levels = (("node", "nvlink", 8, 450e9), ("leaf", "network", 32, 50e9), ("spine", "network", 4, 25e9))
        tree = tree_of(Cluster(name="superpod", gpu=gpu_of("h100"), gpus=1024, levels=tuple(
            Level(name=name, kind=kind, degree=degree, bandwidth=rate, latency_s=0.0, rails=8 if name == "leaf" else 1)
            for name, kind, degree, rate in levels
        )))  # fmt: skip
        capacity, offsets = tree.links.capacity, tree.offsets
        assert capacity[offsets[0] : offsets[0] + 64].sum() == pytest.approx(28.8e12)
        assert capacity[offsets[2] : offsets[2] + 64].sum() == pytest.approx(3.2e12)
        unit = capacity[offsets[4] : offsets[5]].reshape(4, -1)
        np.testing.assert_allclose(unit.sum(axis=1), 6.4e12)

    def test_critical_batches_from_the_links(self):
        tree = tree_of(cluster_of("dgx-h100:1024"))
        inside = tree.links.capacity[tree.offsets[0]]
        node = tree.links.capacity[tree.offsets[2] : tree.offsets[2] + 8].sum()
        assert math.floor(critical_tokens(989e12, inside, in_network=True)) == 1098
        assert math.floor(critical_tokens(989e12, node, in_network=True)) == 1236
        assert math.floor(critical_tokens(989e12, node, in_network=False)) == 2472


def tree_of_switches(nodes: int, each: int) -> Graph:
    """GPUs under node switches under one top switch."""
    gpus = [[f"g{node}.{place}" for place in range(each)] for node in range(nodes)]
    links = [f"  - {{from: [{', '.join(row)}], to: n{node}, bandwidth: 1 GB/s}}" for node, row in enumerate(gpus)]
    switches = ", ".join(f"n{node}" for node in range(nodes))
    return graph_from_yaml("\n".join([
        f"gpus: [{', '.join(name for row in gpus for name in row)}]",
        f"nodes: [{', '.join('[' + ', '.join(row) + ']' for row in gpus)}]",
        f"switches: [{switches}, top]", "links:", *links, f"  - {{from: [{switches}], to: top, bandwidth: 1 GB/s}}",
    ]))  # fmt: skip


def through(graph: Graph, sent: np.ndarray, switch: str) -> tuple[float, float]:
    """(in, out) bytes of a switch."""
    vertex = graph.names.index(switch)
    return float(sent[graph.target == vertex].sum()), float(sent[graph.source == vertex].sum())


class TestSwitchBytes:
    def test_a_reduction_in_the_switch_moves_n_buffers_in_and_n_out(self):
        names = ", ".join(f"g{i}" for i in range(8))
        graph = graph_from_yaml(
            f"gpus: [{names}]\nswitches: [top]\nlinks:\n  - {{from: [{names}], to: top, bandwidth: 1 GB/s}}"
        )
        sent = messages_of("nvls", "all_reduce", np.arange(8)[None], graph, 8).flows(graph)
        assert through(graph, sent.link_bytes(len(graph.links)), "top") == (8.0, 8.0)

    @pytest.mark.parametrize(("nodes", "each"), [(4, 8), (8, 4)])
    def test_a_gather_over_nodes_by_switches_that_copy(self, nodes, each):
        """B in and N B out of a node's switch, B in and (M - 1) B out of the top: each GPU's part goes the ways to all
        others, and a link that several of them share carries it once."""
        graph = tree_of_switches(nodes, each)
        size = nodes * each
        sent = np.zeros(len(graph.links))
        for source in range(size):
            others = np.delete(np.arange(size), source)
            ways = graph.routes(np.full(len(others), source), others).links
            sent[np.setdiff1d(ways, [len(graph.links)])] += 1.0 / size
        assert through(graph, sent, "n0") == (pytest.approx(1.0), pytest.approx(each))
        assert through(graph, sent, "top") == (pytest.approx(1.0), pytest.approx(nodes - 1))

    def test_nvlink_sharp_adds_the_parts_that_ranks_hand_round(self):
        """On a real node every rank multicasts its own part of the sum: one buffer more each way."""
        tree = tree_of(cluster_of("8xh100"))
        sent = messages_of("nvls", "all_reduce", np.arange(8)[None], tree, 8).flows(tree).link_bytes(len(tree.links))
        assert sent[: tree.offsets[1]].sum() == pytest.approx(8 + 1)


def test_a_card_at_a_quarter_makes_the_ring_four_times_as_long():
    """Measured: 537 to 2,149 ms, 4.005 times."""
    levels = (Level(name="node", kind="nvlink", degree=1, bandwidth=1e9, latency_s=0.0),
              Level(name="leaf", kind="network", degree=4, bandwidth=1e7, latency_s=0.0))  # fmt: skip
    tree = tree_of(Cluster(name="star", gpu=gpu_of("h100"), gpus=4, levels=levels))
    ring = messages_of("ring", "all_reduce", np.arange(4)[None], tree, 8)
    slow = slowed(tree, "node 1 gpu 0 > leaf 0", 0.25)
    assert seconds_of(ring, slow, 1.0) / seconds_of(ring, tree, 1.0) == pytest.approx(4.0)


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
    peer = messages_of("gossip_exponential", "neighbor_average", nodes.T, tree, 8)
    across = seconds_of(peer, tree, RESNET_50_BYTES / 8)
    assert 1.7 <= ring / (inside + across) <= 2.0
