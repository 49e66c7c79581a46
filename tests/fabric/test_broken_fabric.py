"""Links and switches that are away or slow: ways over what is left, and errors that say what has gone."""

import numpy as np
import pytest

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.broken import slowed, without
from shardwise.fabric.graph_file import graph_from_yaml
from shardwise.spec.load import cluster_of

PAIRS = (np.arange(256), np.arange(256) + 256)
TWO_SPINES = """
gpus: [a, b]
switches: [l0, l1, s0, s1]
links:
  - {from: a, to: l0, bandwidth: 1 GB/s}
  - {from: b, to: l1, bandwidth: 1 GB/s}
  - {from: [l0, l1], to: [s0, s1], bandwidth: 1 GB/s}
"""


def hashed(down=()):
    return tree_of(cluster_of("dgx-h100:512"), Wiring(routing="ecmp"), down)


def used(tree):
    links = tree.routes(*PAIRS).links
    return {tree.links.name_of(int(link)) for link in np.unique(links) if link < len(tree.links)}


class TestTrees:
    def test_no_message_passes_a_spine_that_is_away(self):
        tree = hashed()
        name = "spine 0.3"
        assert any(name in link.split(" > ") for link in used(tree))
        less = without(tree, name)
        assert not any(name in link.split(" > ") for link in used(less))
        before, after = tree.routes(*PAIRS).links, less.routes(*PAIRS).links
        kept = np.array([not any(name in tree.links.name_of(int(x)).split(" > ") for x in row if x < len(tree.links))
                         for row in before])  # fmt: skip
        # hashes that did not pick it pick what they picked before
        np.testing.assert_array_equal(before[kept], after[kept])

    def test_a_link_away_moves_what_goes_to_and_from_its_leaf(self):
        tree = hashed()
        less = without(tree, "leaf 0.0 > spine 0.0")
        assert not {"leaf 0.0 > spine 0.0", "spine 0.0 > leaf 0.0"} & used(less)
        assert "leaf 0.1 > spine 0.0" in used(less)

    def test_sprayed_packets_share_what_is_left(self):
        tree = tree_of(cluster_of("dgx-h100:512"))
        above = tree.links.tier == 2
        less = without(tree, "spine 0")
        np.testing.assert_allclose(less.links.capacity[above], tree.links.capacity[above] * 7 / 8)
        one = without(tree, "leaf 0.0 > spine 0 (x8)")
        changed = np.flatnonzero(one.links.capacity != tree.links.capacity)
        assert {tree.links.name_of(int(link)) for link in changed} == {
            "leaf 0.0 > spine 0 (x8)", "spine 0 (x8) > leaf 0.0"
        }  # fmt: skip

    def test_a_way_that_has_gone_is_said(self):
        tree = tree_of(cluster_of("dgx-h100:64"), Wiring(cross_rail="spine"))
        less = without(tree, "spine 0")
        with pytest.raises(ValueError, match=r"no path is left from leaf 0\.0 to leaf 0\.1; leave it one spine"):
            less.routes(np.array([0]), np.array([9]))
        less.routes(np.array([0]), np.array([8]))  # the same rail needs no spine
        with pytest.raises(ValueError, match="only path of its GPU"):
            without(tree, "node 0 gpu 0 > leaf 0.0")

    def test_slow_and_away_add_up(self):
        tree = tree_of(cluster_of("dgx-h100:512"))
        both = without(slowed(tree, "node 3 gpu 1 > leaf 0.1", 0.25), "spine 0")
        link = [tree.links.name_of(i) for i in range(len(tree.links))].index("node 3 gpu 1 > leaf 0.1")
        assert both.links.capacity[link] == tree.links.capacity[link] / 4
        assert both.down

    @pytest.mark.parametrize(
        ("name", "share", "said"), [("leaf 9", 0.5, "such as"), ("node 0 gpu 0 > leaf 0.0", 2.0, "share")]
    )
    def test_mistakes_are_named(self, name, share, said):
        with pytest.raises(ValueError, match=said):
            slowed(tree_of(cluster_of("dgx-h100:64")), name, share)


class TestGraphs:
    def test_switch_and_link_away(self):
        graph = graph_from_yaml(TWO_SPINES)
        for name, left in (("s0", 8), ("l0 > s0", 10)):
            less = without(graph, name)
            assert len(less.links) == left
            names = {less.links.name_of(int(x)) for x in np.unique(less.routes(np.array([0]), np.array([1])).links)
                     if x < len(less.links)}  # fmt: skip
            assert "l0 > s1" in names
            assert "l0 > s0" not in names
        with pytest.raises(ValueError, match="no path from a to b"):
            without(without(graph, "s0"), "s1").routes(np.array([0]), np.array([1]))
