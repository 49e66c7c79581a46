"""Collectives on a placed axis: textbook answers, properties, and the measured sweeps."""

import csv
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.cost.hops import hops_of
from shardwise.cost.network import network_of
from shardwise.cost.placement import level_members
from shardwise.spec.load import cluster_of
from truth import truth

H100 = cluster_of("dgx-h100:1024")
NETWORK = network_of(H100)
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 64, 100, 512, 1024)


def test_members_of_placed_groups():
    shape = level_members(H100, [8, 16, 16, 4, 6, 5], [1, 1, 8, 4, 2, 3])
    # six every second GPU lie as 4 and 2 in nodes of eight, five every third as 3 and 2 or 2, 3
    assert shape.members[0].tolist() == [8, 8, 1, 2, 2, 1]
    assert shape.members[-1].tolist() == [8, 16, 16, 4, 6, 5]


@pytest.mark.parametrize("op", OPS)
def test_one_rank_is_free(op):
    assert NETWORK.seconds(op, 1e9, 1, 1) == 0.0


@pytest.mark.parametrize("op", OPS)
def test_groups_priced_before_change_nothing(op):
    size, stride, bytes_ = np.array([1, 64, 8, 2, 64]), np.array([1, 8, 1, 16, 8]), np.array([1e3, 1e5, 1e9, 1e7, 4e8])
    used = network_of(H100)
    used.seconds(op, 1e6, np.array([2, 512, 24]), np.array([1, 2, 8]))
    used.seconds(op, 1e6, 8, 1)
    fresh = network_of(H100).breakdown(op, bytes_, size, stride)
    told = used.breakdown(op, bytes_, size, stride)
    assert told.seconds.tolist() == fresh.seconds.tolist()
    assert told.algorithm.tolist() == fresh.algorithm.tolist()
    assert told.latency.tolist() == fresh.latency.tolist()


@pytest.mark.parametrize("op", OPS)
def test_arrays_equal_scalars(op):
    size, stride, bytes_ = np.meshgrid([1, 2, 8, 12, 64], [1, 3, 8], [1e3, 1e6, 1e9], indexing="ij")
    many = NETWORK.seconds(op, bytes_, size, stride)
    for place in np.ndindex(size.shape):
        one = NETWORK.seconds(op, bytes_[place], size[place], stride[place])
        assert one.shape == ()
        assert many[place] == pytest.approx(float(one), rel=1e-12)


@given(st.sampled_from(OPS), st.sampled_from(SIZES), st.sampled_from((1, 2, 8, 16)), st.floats(1.0, 1e11))
@settings(max_examples=60, deadline=None)
def test_more_bytes_never_faster_and_more_bandwidth_never_slower(op, size, stride, bytes_):
    now = NETWORK.seconds(op, bytes_, size, stride)
    assert 0.0 < now <= NETWORK.seconds(op, bytes_ * 1.5, size, stride)
    levels = tuple(msgspec.structs.replace(level, bandwidth=2 * level.bandwidth) for level in H100.levels)
    faster = network_of(msgspec.structs.replace(H100, levels=levels))
    assert faster.seconds(op, bytes_, size, stride) <= now


def test_ring_all_reduce_is_scatter_plus_gather():
    for size in (8, 64):
        whole = NETWORK.seconds("all_reduce", 8e9, size, algorithm="ring")
        halves = sum(NETWORK.seconds(op, 8e9, size, algorithm="ring") for op in ("reduce_scatter", "all_gather"))
        # Gather and scatter each copy the rank's own part once more.
        assert whole == pytest.approx(float(halves), rel=0.05)


def test_tensor_parallel_16_over_two_nodes_uses_all_cards_of_the_node():
    flat = NETWORK.seconds("all_reduce", 1e9, 16, algorithm="ring")
    two = NETWORK.seconds("all_reduce", 1e9, 16, algorithm="two_level")
    assert two < flat
    # One card of 50 GB/s alone would need 37 ms; eight of them need less than 6.
    assert flat < 1.2 * (2 * 15 / 16) * 1e9 / (8 * 50e9)


def test_stride_leaves_the_group_its_own_card_only():
    wide = NETWORK.seconds("all_gather", 1e9, 16, 8)
    assert wide == pytest.approx(1e9 * 15 / 16 / (0.97 * 50e9), rel=0.1)
    assert wide > 5 * NETWORK.seconds("all_gather", 1e9, 16, 1)


def test_oversubscription_and_efficiency_slow_the_network_down():
    thin = tuple(msgspec.structs.replace(lv, oversubscription=2.0 if i else 1.0) for i, lv in enumerate(H100.levels))
    slow = network_of(msgspec.structs.replace(H100, levels=thin)).seconds("all_gather", 4e9, 64, 8)
    now = NETWORK.seconds("all_gather", 4e9, 64, 8)
    assert slow == pytest.approx(2 * now, rel=0.05)
    assert network_of(H100, efficiency={"leaf": 0.5}).seconds("all_gather", 4e9, 64, 8) > 1.9 * now


def test_reducing_switches_help_by_a_third_not_by_two():
    plain = network_of(H100, nvls=False).seconds("all_reduce", 16e9, 8)
    reduced = NETWORK.seconds("all_reduce", 16e9, 8)
    assert 1.15 < plain / reduced < 1.5
    assert network_of(H100, sharp=True).seconds("all_reduce", 16e9, 256) < NETWORK.seconds("all_reduce", 16e9, 256)


def test_traffic_by_level():
    sent = NETWORK.traffic("all_gather", 1600.0, 16)
    assert sent.shape == (len(H100.levels),)
    # each of the eight rings leaves a node once: that hop goes over a card and not over NVLink
    assert sent[0] == pytest.approx(1500.0 * 7 / 8)
    assert sent[1] == pytest.approx(1500.0 / 8)
    assert sent[2:].sum() == 0
    spread = NETWORK.traffic("all_to_all", 1024.0, 1024)
    # what goes to the seven other rails of far nodes passes NVLink first
    assert spread[:2].tolist() == [7.0 + 1016.0 * 7 / 8, 1016.0]


def test_breakdown_names_the_binding_level_and_the_latency():
    why = NETWORK.breakdown("all_gather", np.array([1e3, 1e10]), 64, 8)
    assert why.level.tolist() == [1, 1]
    assert why.latency[0] / why.seconds[0] > 0.9
    assert why.latency[1] / why.seconds[1] < 0.1
    assert set(why.algorithm) == {"ring"}


def test_bus_bandwidth_on_large_messages():
    """About 370 of 450 GB/s by ring, 480 with reduction in the switch, 380 over many nodes (GTC24 S62129)."""
    assert NETWORK.bus_bandwidth("all_reduce", 16e9, 8, algorithm="ring") == pytest.approx(370e9, rel=0.04)
    assert NETWORK.bus_bandwidth("all_reduce", 16e9, 8) == pytest.approx(480e9, rel=0.04)
    assert NETWORK.bus_bandwidth("all_reduce", 16e9, 512) == pytest.approx(375e9, rel=0.05)


def test_sizes_that_fill_nodes_lie_between_their_neighbours():
    sizes = [2, 4, 8, *range(16, 65, 8)]
    times = [float(NETWORK.seconds("all_reduce", 1e8, size, algorithm="ring")) for size in sizes]
    assert all(b > 0.97 * a for a, b in pairwise(times))


def test_a_rank_alone_on_its_node_has_one_card_for_its_group():
    """Nine ranks are eight and one: every ring passes that one card, which sixteen ranks have eight of."""
    nine, sixteen = (float(NETWORK.seconds("all_reduce", 1e9, size, algorithm="ring")) for size in (9, 16))
    assert nine == pytest.approx(2 * 8 / 9 * 1e9 / (0.97 * 50e9), rel=0.05)
    assert nine > 5 * sixteen


def test_uneven_groups_against_ranks_counted_one_by_one():
    cluster = cluster_of("dgx-h100:96")
    for size, stride in ((6, 1), (3, 4), (12, 2), (4, 6), (2, 24), (5, 3)):
        found = level_members(cluster, size, stride)
        span = size * stride
        groups = [[base + start + stride * k for k in range(size)] for base in range(0, 96 // span * span, span)
                  for start in range(stride)]  # fmt: skip
        leaves = [sum(a // 8 != b // 8 for a, b in pairwise(group)) for group in groups]
        assert found.hops[1:].sum() == pytest.approx(np.mean(leaves))
        runs = {sum(rank // 8 == node for rank in group) for group in groups for node in range(12)} - {0}
        assert found.members[0] == np.gcd.reduce(list(runs))


class TestHops:
    def test_neighbours_that_share_a_node_and_some_that_do_not(self):
        """Four stages of four GPUs: two in a node, so the middle boundary alone leaves it."""
        cluster = cluster_of("dgx-h100:16")
        network = network_of(cluster)
        near, far = (float(network.seconds("send", 1e8, 2, apart)) for apart in (4, 8))
        found = hops_of(network, 1e8, 4, 4)
        assert (found.nearest, found.slowest, found.outside) == (near, far, pytest.approx(1 / 3))
        assert found.mean == pytest.approx((2 * near + far) / 3)

    def test_one_rank_has_no_neighbour(self):
        found = hops_of(NETWORK, 1e8, 1, 8)
        assert found.slowest == found.mean == found.outside == 0.0

    def test_a_few_that_leave_a_block_have_its_ways_up(self):
        """Of 32 GPUs under leaves with a thin spine four send out, each over the four cards' worth of its rail."""
        levels = (*H100.levels[:1], msgspec.structs.replace(H100.levels[1], degree=4),
                  msgspec.structs.replace(H100.levels[2], oversubscription=4.0))  # fmt: skip
        thin = network_of(msgspec.structs.replace(H100, gpus=128, levels=levels))
        few, all_of_it = hops_of(thin, 1e9, 32, 4).slowest, hops_of(thin, 1e9, 4, 32).slowest
        assert few == pytest.approx(float(thin.seconds("send", 1e9, 2, 8)), rel=0.01)
        assert all_of_it == pytest.approx(4 * few, rel=0.01)


def test_the_way_between_rails():
    """ep 32 on nodes of 8, leaves of 4 nodes under a 4:1 spine: over NVLink the spine stays empty."""
    levels = (*H100.levels[:1], msgspec.structs.replace(H100.levels[1], degree=4),
              msgspec.structs.replace(H100.levels[2], oversubscription=4.0))  # fmt: skip
    over = msgspec.structs.replace(levels[1], cross_rail="spine")
    first, spine = (
        network_of(msgspec.structs.replace(H100, gpus=128, levels=(levels[0], leaf, levels[2])))
        for leaf in (levels[1], over)
    )
    sent = [network.traffic("all_to_all", 32.0, 32) for network in (first, spine)]
    assert sent[0].tolist() == [7.0 + 24.0 * 7 / 8, 24.0, 0.0]
    assert sent[1].tolist() == [7.0, 24.0, 24.0 * 7 / 8]
    ratio = spine.seconds("all_to_all", 1e10, 32) / first.seconds("all_to_all", 1e10, 32)
    assert ratio == pytest.approx(4.0 * 7 / 8, rel=0.03)


def test_errors_say_what_to_write():
    with pytest.raises(ValueError, match="did you mean 'all_reduce'"):
        NETWORK.seconds("allreduce", 1.0, 8)
    with pytest.raises(ValueError, match="does not serve all_gather"):
        NETWORK.seconds("all_gather", 1.0, 8, algorithm="tree")
    with pytest.raises(ValueError, match="cannot run all_reduce"):
        NETWORK.seconds("all_reduce", 1.0, 8, algorithm="tree")
    with pytest.raises(ValueError, match="no level 'spin'"):
        network_of(H100, efficiency={"spin": 0.5})
    with pytest.raises(ValueError, match="1 or more"):
        NETWORK.seconds("all_reduce", 1.0, 0)


def test_a_slower_constant_is_seen():
    ring = NETWORK.links.link["nvlink4"].ring
    slower = msgspec.structs.replace(ring, rate=tuple(rate / 2 for rate in ring.rate))
    link = msgspec.structs.replace(NETWORK.links.link["nvlink4"], ring=slower)
    links = msgspec.structs.replace(NETWORK.links, link={**NETWORK.links.link, "nvlink4": link})
    assert replace(NETWORK, links=links).seconds("all_gather", 1e9, 8) > 1.7 * NETWORK.seconds("all_gather", 1e9, 8)


SWEEPS = {"A100-80GB-SXM": "dgx-a100:8", "H100-80GB-SXM": "dgx-h100:8", "B200-SXM": "dgx-b200:8"}


@pytest.mark.parametrize("gpu", list(SWEEPS))
def test_one_node_sweeps(gpu):
    network = network_of(cluster_of(SWEEPS[gpu]))
    with truth("collectives.csv").open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["source"] == "aiconfigurator" and r["gpu"] == gpu]
    errors = []
    for row in rows:
        op = row["op"].replace("alltoall", "all_to_all")
        predicted = network.seconds(op, float(row["bytes"]), int(row["gpus"])) * 1e6
        errors.append(abs(predicted / float(row["time_us"]) - 1))
    assert len(errors) >= 250
    assert np.mean(errors) < 0.10


def test_many_node_all_reduce():
    network = network_of(cluster_of("dgx-h100:8192"))
    with truth("collectives.csv").open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["source"].endswith("digitised")]
    bytes_, gpus, took = (np.array([float(r[key]) for r in rows]) for key in ("bytes", "gpus", "time_us"))
    error = network.seconds("all_reduce", bytes_, gpus.astype(int)) * 1e6 / took - 1
    assert len(error) > 150
    assert np.mean(np.abs(error)) < 0.12


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_steps_inside_a_node_cost_more_where_the_ring_leaves_it(op):
    links = NETWORK.links
    network = links.link["network"]
    plain = msgspec.structs.replace(network, ring=msgspec.structs.replace(network.ring, inside_us=()))
    without = network_of(H100, links=msgspec.structs.replace(links, link={**links.link, "network": plain}))
    # inside a node, and with one rank of each node, no step changes
    for size, stride in ((8, 1), (128, 8)):
        assert NETWORK.seconds(op, 1e8, size, stride) == without.seconds(op, 1e8, size, stride)
    more = [float(NETWORK.seconds(op, 1e8, n, 1) - without.seconds(op, 1e8, n, 1)) for n in (16, 256, 1024)]
    assert 0.0 < more[0] < more[1] < more[2]
    assert more[2] > 1e-6 * 1024
