"""The link graph of a cluster: sizes, capacities and ways, checked by walking them."""

import re
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.fabric import Wiring, tree_of
from shardwise.spec.load import cluster_of

SUPERPOD = cluster_of("dgx-h100:1024")
CLUSTERS = ("8xh100", "dgx-h100:64", "dgx-h100:1024", "dgx-h100:4096", "gb200-nvl72:576", "hgx-h100-roce:6144",
            "aws-p4d:64", "dgx-a100:560")  # fmt: skip
WIRINGS = (
    Wiring(), Wiring(routing="ecmp", connections=3, seed=5, cross_rail="spine"), Wiring(cross_rail="spine"),
    Wiring(rails="none"), Wiring(rails="none", routing="ecmp"),
)  # fmt: skip


def walked(tree, row):
    """Names of the vertices a flow passes, from its links."""
    return [tree.links.name_of(int(link)).split(" > ") for link in row if link < len(tree.links)]


def vertex(name, node):
    """'its switch' and 'gpu 3' in a link's name leave the node out."""
    if name == "its switch":
        return f"switch of {node}"
    return f"{node} {name}" if re.fullmatch(r"gpu \d+", name) else name


def full_names(hops):
    found = []
    for start, end in hops:
        node = re.search(r"node \d+", f"{start} {end}")
        found.append(tuple(vertex(name, node[0] if node else "") for name in (start, end)))
    return found


class TestSuperpod:
    def test_switches_and_speeds_of_the_reference_architecture(self):
        tree = tree_of(SUPERPOD, Wiring(routing="ecmp"))
        leaf, spine = tree.tiers
        assert (leaf.switches, leaf.block, spine.built) == (8, 256, 16)
        assert spine.capacity == 2 * 400e9 / 8
        assert len(tree.links) == 4 * 1024 + 2 * 32 * 16

    def test_bisection_is_full_and_oversubscription_divides_it(self):
        tree = tree_of(SUPERPOD)
        up = (tree.links.tier == 2).nonzero()[0]
        assert tree.links.capacity[up].sum() / 2 == 51.2e12
        half = replace(SUPERPOD, levels=(*SUPERPOD.levels[:2], replace(SUPERPOD.levels[2], oversubscription=2.0)))
        assert tree_of(half).links.capacity[up].sum() / 2 == 25.6e12

    def test_same_rail_stays_under_its_leaf(self):
        tree = tree_of(SUPERPOD)
        row = tree.routes(np.array([3]), np.array([8 * 20 + 3])).links[0]
        assert full_names(walked(tree, row)) == [("node 0 gpu 3", "leaf 0.3"), ("leaf 0.3", "node 20 gpu 3")]

    def test_cross_rail_goes_over_a_spine_or_over_nvlink(self):
        over = tree_of(SUPERPOD, Wiring(cross_rail="spine"))
        row = over.routes(np.array([3]), np.array([8 * 20 + 5])).links[0]
        assert [a.split()[0] for a, _ in full_names(walked(over, row))] == ["node", "leaf", "spine", "leaf"]
        inside = tree_of(SUPERPOD)  # what NCCL does
        row = inside.routes(np.array([3]), np.array([8 * 20 + 5])).links[0]
        assert full_names(walked(inside, row)) == [
            ("node 0 gpu 3", "switch of node 0"), ("switch of node 0", "node 0 gpu 5"),
            ("node 0 gpu 5", "leaf 0.5"), ("leaf 0.5", "node 20 gpu 5"),
        ]  # fmt: skip

    def test_rail_only_never_joins_two_rails(self):
        tree = tree_of(SUPERPOD, Wiring(rails="only", routing="ecmp"))
        random = np.random.default_rng(0)
        source, target = random.integers(0, 1024, 500), random.integers(0, 1024, 500)
        for row in tree.routes(source, target).links:
            leaves = {re.sub(r"leaf \d+\.", "", name)
                      for hop in walked(tree, row) for name in hop if name.startswith("leaf")}  # fmt: skip
            assert len(leaves) <= 1

    def test_ecmp_depends_on_the_seed_and_uses_every_spine(self):
        pairs = np.arange(512), np.arange(512) + 512
        first, again, other = (
            tree_of(SUPERPOD, Wiring(routing="ecmp", seed=s)).routes(*pairs).links for s in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
        ups = first[:, 3]
        assert len(np.unique((ups - ups.min()) % 16)) == 16


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
class TestEveryCluster:
    def test_ways_are_unbroken(self, name, wiring):
        cluster = cluster_of(name)
        tree = tree_of(cluster, wiring)
        random = np.random.default_rng(1)
        source, target = random.integers(0, cluster.gpus, 60), random.integers(0, cluster.gpus, 60)
        routes = tree.routes(source, target)
        for row, message in zip(routes.links, routes.message, strict=True):
            a, b = int(source[message]), int(target[message])
            hops = full_names(walked(tree, row))
            if a == b:
                assert hops == []
                continue
            size = cluster.node_size
            assert hops[0][0] == f"node {a // size} gpu {a % size}"
            assert hops[-1][1] == f"node {b // size} gpu {b % size}"
            assert all(one[1] == two[0] for one, two in pairwise(hops))

    def test_uplinks_carry_what_the_level_promises(self, name, wiring):
        cluster = cluster_of(name)
        tree = tree_of(cluster, wiring)
        for number, tier in enumerate(tree.tiers[1:]):
            if tier.level < 2:
                continue
            group = slice(tree.offsets[4 + 2 * number], tree.offsets[5 + 2 * number])
            promised = cluster.gpus * cluster.levels[tier.level].usable_bandwidth
            assert tree.links.capacity[group].sum() >= promised * (1 - 1e-9)
            assert tree.links.capacity[group].sum() <= promised * 1.35  # a last block that is not full

    def test_latency_of_the_longest_way_is_the_top_levels(self, name, wiring):
        cluster = cluster_of(name)
        tree = tree_of(cluster, wiring)
        if not tree.tiers or tree.forwards:
            return
        routes = tree.routes(np.array([0]), np.array([cluster.gpus - 1]))
        taken = routes.links[0][routes.links[0] < len(tree.links)]
        assert tree.links.latency_s[taken].sum() == pytest.approx(cluster.levels[-1].latency_s)


def test_rail_only_needs_rails():
    with pytest.raises(ValueError, match="one rail"):
        tree_of(cluster_of("hgx-h100-roce:6144"), Wiring(rails="only"))


@pytest.mark.parametrize(("field", "value"), [("rails", "optimized"), ("routing", "ecpm"), ("connections", 0),
                                              ("seed", -1), ("cross_rail", "leaf"), ("radix", 0)])  # fmt: skip
def test_bad_wiring_says_what_to_write(field, value):
    with pytest.raises(ValueError, match=field):
        Wiring(**{field: value})


def test_names_of_links_are_bounded():
    with pytest.raises(IndexError):
        tree_of(cluster_of("8xh100")).links.name_of(16)
