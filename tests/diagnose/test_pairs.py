"""The slow link is named from measured pairs; the plan of pairs tells every link from the others."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.measured.diagnose.pairs import Pair, diagnose, path, rounds
from shardwise.spec.load import cluster_of

POD = cluster_of("dgx-h100:1024")  # 4 units of 32 nodes
NODES = [f"node{i}" for i in range(128)]


def measured(slow, nodes=NODES, cluster=POD, seed=0, rate=380.0):
    noise = random.Random(seed)
    found = []
    for each in rounds(nodes):
        for a, b in each:
            links = path(cluster, nodes.index(a), nodes.index(b))
            part = min([1.0, *(slow.get(link, 1.0) for link in links)])
            found.append(Pair(a, b, rate * 1e9 * part * noise.uniform(0.95, 1.0)))
    return found


@pytest.mark.parametrize("count", [2, 3, 5, 8, 31, 128])
def test_every_node_is_measured_in_few_rounds_of_disjoint_pairs(count):
    plan = rounds(NODES[:count])
    assert len(plan) == (count - 1).bit_length()
    for each in plan:
        ends = [end for pair in each for end in pair]
        assert len(ends) == len(set(ends))
    assert {end for each in plan for pair in each for end in pair} == set(NODES[:count])


def test_one_node_needs_no_pairs():
    assert rounds(["a"]) == []


def test_paths_climb_to_the_level_that_joins():
    assert path(POD, 0, 1) == [("node", 0), ("node", 1)]
    assert path(POD, 0, 40) == [("node", 0), ("node", 40), ("leaf", 0), ("leaf", 1)]
    core = cluster_of("dgx-h100:2048")
    assert [kind for kind, _ in path(core, 0, 200)] == ["node", "node", "leaf", "leaf", "spine", "spine"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 127), st.floats(0.05, 0.7), st.integers(0, 99))
def test_a_slow_host_link_is_named(number, part, seed):
    found = diagnose(measured({("node", number): part}, seed=seed), NODES, POD)
    assert [link.name for link in found.links] == [f"host link of node{number}"]
    assert found.links[0].part == pytest.approx(part, rel=0.1)
    assert found.links[0].or_else == ()
    assert len(found.slow_pairs) == 7
    assert not found.unexplained


@pytest.mark.parametrize("unit", range(4))
def test_a_slow_uplink_is_named_and_no_host_is(unit):
    found = diagnose(measured({("leaf", unit): 0.5}), NODES, POD)
    assert [link.name for link in found.links] == [f"uplink of leaf {unit} (node{32 * unit} .. node{32 * unit + 31})"]
    assert found.links[0].or_else == ()


def test_two_slow_links_at_once():
    found = diagnose(measured({("node", 37): 0.4, ("leaf", 2): 0.6}), NODES, POD)
    assert {link.name.split(" (")[0] for link in found.links} == {"host link of node37", "uplink of leaf 2"}


def test_links_that_cannot_be_told_apart_are_both_given():
    two = cluster_of("dgx-h100:512")
    nodes = NODES[:64]
    found = diagnose(measured({("leaf", 1): 0.5}, nodes, two), nodes, two)
    assert len(found.links) == 1
    assert {found.links[0].name[:16], found.links[0].or_else[0][:16]} == {"uplink of leaf 0", "uplink of leaf 1"}


def test_a_sound_fabric_has_no_slow_link():
    found = diagnose(measured({}), NODES, POD)
    assert found.links == found.slow_pairs == ()


def test_a_slow_pair_of_sound_links_is_left_unexplained():
    pairs = measured({})
    pairs[3] = Pair(pairs[3].a, pairs[3].b, 1e11)
    found = diagnose(pairs, NODES, POD)
    assert found.unexplained == (pairs[3],)
    assert found.links == ()


def test_an_oversubscribed_level_is_no_fault():
    roce = cluster_of("hgx-h100-roce:24576")
    nodes = [f"n{i}" for i in range(3072)]
    thin = {("pod", number): 1 / 7 for number in range(8)}
    assert diagnose(measured(thin, nodes, roce), nodes, roce).slow_pairs == ()


def test_an_unknown_host_says_what_to_write():
    with pytest.raises(ValueError, match="fabric order"):
        diagnose([Pair("x", "node1", 1e9)], NODES, POD)
