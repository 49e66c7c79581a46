"""Collectives on the link graph: the closed form on symmetric fabrics, and what only the graph can know."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.cost.network import network_of
from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.duration import duration_of
from shardwise.fabric.graph_file import graph_from_yaml
from shardwise.fabric.phases import messages_of, phases_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.solver import Flows, finish_times, joined, max_min
from shardwise.plugins.collectives import collectives
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.policy import Policy

SYMMETRIC = ("8xh100", "dgx-h100:64", "dgx-h100:512", "gb200-nvl72:288", "dgx-a100:560", "aws-p4d:64")
LARGE = 4e9
MBIT = 1e6 / 8


def call_of(op, size, bytes_=LARGE, group="dp"):
    return PlacedMessage(
        name="", axis="dp", lane="grad", phase="step", op=op, bytes=bytes_, count=1.0, group=group, ranks=size, stride=1
    )


def prices_on(cluster, wiring=None, **seats):
    tree = tree_of(cluster, wiring)
    return Prices(tree, network_of(cluster), seats_of(Policy(dp=cluster.gpus), tree, **seats))


def lab(hosts_per_leaf, leaves, host, spine, *, node=1, node_rate=400 * MBIT, rails=1):
    """Hosts under leaves, and a spine of so many bytes/s for each leaf."""
    below = hosts_per_leaf * node // rails
    levels = (
        Level(name="node", kind="nvlink", degree=node, bandwidth=node_rate, latency_s=0.0),
        Level(name="leaf", kind="network", degree=hosts_per_leaf, bandwidth=host, latency_s=0.0, rails=rails),
        Level(name="spine", kind="network", degree=leaves, bandwidth=host, latency_s=0.0,
              oversubscription=below * host / spine),
    )  # fmt: skip
    return Cluster(name="lab", gpu=gpu_of("h100"), gpus=node * hosts_per_leaf * leaves, levels=levels)


def ring_seconds(cluster, order, wiring=None, capacity=None):
    """All-reduce of one byte along a ring through the GPUs in this order."""
    tree = tree_of(cluster, wiring)
    size = len(order)
    path = np.array(order)
    routes = tree.routes(path, np.roll(path, -1))
    rates = max_min(routes.links, tree.links.capacity if capacity is None else capacity)
    return 2 * (size - 1) / size / rates.min()


class TestAgreesWithTheClosedForm:
    @pytest.mark.parametrize("name", SYMMETRIC)
    @pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"])
    def test_the_librarys_choice(self, name, op):
        cluster = cluster_of(name)
        found = prices_on(cluster).priced(call_of(op, cluster.gpus))
        assert found.seconds == pytest.approx(found.closed_form_s, rel=0.05)
        assert found.link >= 0

    @pytest.mark.parametrize("algorithm", sorted(collectives()))
    @pytest.mark.parametrize("name", ["8xh100", "dgx-h100:64", "dgx-h100:512", "gb200-nvl72:288", "aws-p4d:64"])
    def test_every_algorithm(self, name, algorithm):
        cluster, found = cluster_of(name), collectives()[algorithm]
        tree, network = tree_of(cluster), network_of(cluster, sharp=True)
        # one rank per node is what PAT is for; halving and doubling is for powers of two
        each = cluster.node_size if algorithm == "pat" else 1
        policy = Policy(tp=each, dp=cluster.gpus // each)
        if cluster.gpus == each or (algorithm == "halving_doubling" and cluster.gpus & (cluster.gpus - 1)):
            return
        prices = Prices(tree, network, seats_of(policy, tree))
        for op in found.ops:
            call = PlacedMessage(
                name="",
                axis="dp",
                lane="grad",
                phase="step",
                op=op,
                bytes=LARGE,
                count=1.0,
                group="dp",
                ranks=policy.dp,
                stride=each,
            )
            if not runs(found, cluster):
                with pytest.raises(ValueError, match="it needs"):
                    prices.priced(call, algorithm)
                continue
            priced = prices.priced(call, algorithm)
            assert priced.algorithm == algorithm
            assert priced.seconds == pytest.approx(priced.closed_form_s, rel=0.05)

    def test_many_groups_at_once_are_as_fast_as_one_where_nothing_is_shared(self):
        cluster = cluster_of("dgx-h100:256")
        tree, network = tree_of(cluster), network_of(cluster)
        policy = Policy(tp=8, dp=32)
        prices = Prices(tree, network, seats_of(policy, tree))
        for group, size, stride in (("tp", 8, 1), ("dp_cp", 32, 8)):
            found = prices.priced(
                PlacedMessage(name="", axis="dp", lane="grad", phase="step", op="all_gather",
                              bytes=LARGE, count=1.0, group=group, ranks=size, stride=stride)
            )  # fmt: skip
            assert found.seconds == pytest.approx(found.closed_form_s, rel=0.05)


def runs(found, cluster):
    levels = {"none": (), "node": cluster.levels[:1], "network": cluster.levels[1:], "all": cluster.levels}
    adds = all(level.reduces for level in levels[found.reduces_at])
    torus = found.torus != "only" or any(level.torus for level in cluster.levels)
    return adds and torus and not (found.spans_nodes and len(cluster.levels) == 1)


class TestBytes:
    @pytest.mark.parametrize("algorithm", sorted(collectives()))
    def test_every_rank_sends_what_the_algorithm_says(self, algorithm):
        tree, found = tree_of(cluster_of("dgx-h100:64")), collectives()[algorithm]
        for op in found.ops:
            source, _, size = messages_of(algorithm, op, np.arange(64)[None], tree, 8).pairs()
            np.testing.assert_allclose(np.bincount(source, weights=size, minlength=64), found.sent(op, 64, 8))

    def test_channels_leave_over_as_many_cards_as_a_group_may_use(self):
        tree = tree_of(cluster_of("gb200-nvl72:288"))
        sent = messages_of("ring", "all_reduce", np.arange(288)[None], tree, 8)
        out = tree.node[sent.source] != tree.node[sent.target]
        assert len(np.unique(sent.source[out])) == 4 * 8

    def test_what_is_sent_is_what_is_on_the_first_links(self):
        tree = tree_of(cluster_of("dgx-h100:64"))
        messages = messages_of("ring", "all_reduce", np.arange(64)[None], tree, 8)
        on_links = messages.flows(tree).link_bytes(len(tree.links))
        out = on_links[tree.offsets[0] : tree.offsets[1]].sum() + on_links[tree.offsets[2] : tree.offsets[3]].sum()
        assert out == pytest.approx(messages.bytes.sum())


class TestMeasuredRatios:
    """Ratios measured with real collectives on emulated links (3.83, 3.94, 4.005; slowest pair 0.48, 0.67, 0.78)."""

    def test_a_ring_interleaved_over_two_leaves_is_four_times_slower(self):
        two8 = lab(4, 2, 100 * MBIT, 50 * MBIT)
        aligned = ring_seconds(two8, [0, 1, 2, 3, 4, 5, 6, 7])
        assert ring_seconds(two8, [0, 4, 1, 5, 2, 6, 3, 7]) / aligned == pytest.approx(4.0)

    def test_the_same_from_a_deal_of_ranks(self):
        two8 = lab(4, 2, 100 * MBIT, 50 * MBIT)
        tree = tree_of(two8)
        times = {}
        for deal, ring in (("packed", "rank"), ("alternating", "rank"), ("alternating", "sorted")):
            seats = seats_of(Policy(dp=8), tree, deal=deal, ring=ring)
            messages = messages_of("ring", "all_reduce", seats.ringed(seats.groups("dp")), tree, 8)
            times[deal, ring] = finish_times(messages.flows(tree), tree.links.capacity).max()
        assert times["alternating", "rank"] / times["packed", "rank"] == pytest.approx(4.0)
        assert times["alternating", "sorted"] == pytest.approx(times["packed", "rank"])

    def test_all_to_all_does_not_care(self):
        two8 = lab(4, 2, 100 * MBIT, 50 * MBIT)
        tree = tree_of(two8)
        times = []
        for deal in ("packed", "alternating"):
            seats = seats_of(Policy(dp=8), tree, deal=deal)
            messages = messages_of("pairwise", "all_to_all", seats.groups("dp"), tree, 8)
            times.append(finish_times(messages.flows(tree), tree.links.capacity).max())
        assert times[0] == pytest.approx(times[1])

    def test_a_ring_that_crosses_rails_is_four_times_slower(self):
        rail = lab(4, 1, 50 * MBIT, 50 * MBIT, node=2, rails=2)
        node_major = [0, 1, 2, 3, 4, 5, 6, 7]
        rail_aligned = [0, 2, 4, 6, 7, 5, 3, 1]
        spine = Wiring(cross_rail="spine")
        ratio = ring_seconds(rail, node_major, spine) / ring_seconds(rail, rail_aligned, spine)
        assert ratio == pytest.approx(4.0)
        # over NVLink to the right card first, the node's order does not matter
        over = Wiring(cross_rail="nvlink")
        assert ring_seconds(rail, node_major, over) == pytest.approx(ring_seconds(rail, rail_aligned, over))

    def test_one_card_at_a_quarter_of_its_speed(self):
        star = lab(4, 1, 100 * MBIT, 400 * MBIT)
        tree = tree_of(star)
        slow = tree.links.capacity.copy()
        slow[tree.offsets[2] + 1] /= 4
        ratio = ring_seconds(star, [0, 1, 2, 3], capacity=slow) / ring_seconds(star, [0, 1, 2, 3])
        assert ratio == pytest.approx(4.0)

    @pytest.mark.parametrize(("connections", "efficiency"), [(1, 0.50), (4, 0.68), (16, 0.82)])
    def test_hashed_connections(self, connections, efficiency):
        """Four pairs over four uplinks, a pair's bytes dealt out to its connections: how full the line is."""
        base = lab(4, 2, 100 * MBIT, 400 * MBIT)
        found = []
        for seed in range(400):
            tree = tree_of(base, Wiring(routing="ecmp", connections=connections, seed=seed, radix=2))
            assert tree.tiers[1].fan == 4
            routes = tree.routes(np.arange(4), np.arange(4) + 4)
            ends = finish_times(Flows(routes.links, routes.share * 100 * MBIT), tree.links.capacity)
            found.append(1.0 / ends.max())
        assert np.mean(found) == pytest.approx(efficiency, abs=0.03)


def test_where_a_switch_cannot_add_the_next_best_runs():
    node = cluster_of("8xh100")
    assert prices_on(node).priced(call_of("all_reduce", 8)).algorithm == "nvls"
    two = cluster_of("dgx-h100:16")
    assert prices_on(two, deal="scattered").priced(call_of("all_reduce", 16)).algorithm == "tree"


def test_rounds_that_wait_take_longer_than_rounds_in_pieces():
    tree = tree_of(cluster_of("dgx-h100:64"))
    waiting = phases_of("halving_doubling", "all_reduce", np.arange(64)[None], tree, 8)
    assert len(waiting.each) == 12
    assert len(phases_of("ring", "all_reduce", np.arange(64)[None], tree, 8).each) == 1
    rounds = sum(duration_of(m.flows(tree), tree.links.capacity).seconds * n for m, n in waiting.each)
    assert rounds > 1.5 * duration_of(waiting.all.flows(tree), tree.links.capacity).seconds


class TestSwitchesThatAdd:
    """SHARP on the graph: a card sends its part once, a leaf and a spine hand on one sum each."""

    def test_every_tier_carries_one_sum(self):
        tree = tree_of(cluster_of("dgx-h100:1024"))
        links = messages_of("sharp", "all_reduce", np.arange(1024)[None], tree, 8).flows(tree)
        sent = links.link_bytes(len(tree.links))
        assert sent[tree.offsets[2] : tree.offsets[4]] == pytest.approx(1 / 8)
        # rail i of each of 4 units hands one eighth up, and gets it back
        assert sent[tree.offsets[4] :] == pytest.approx(1 / 8)
        assert len(sent[tree.offsets[4] :]) == 2 * 4 * 8

    def test_it_halves_what_a_ring_sends(self):
        tree = tree_of(cluster_of("dgx-h100:1024"))
        times = [duration_of(messages_of(a, "all_reduce", np.arange(1024)[None], tree, 8).flows(tree),
                             tree.links.capacity).seconds for a in ("ring", "nvls")]  # fmt: skip
        assert times[0] / times[1] == pytest.approx(2.0, rel=0.01)

    def test_sums_of_several_rails_need_a_switch_that_joins_them(self):
        tree = tree_of(cluster_of("dgx-h100:1024"), Wiring(rails="only"))
        tree.adding(np.arange(0, 1024, 8)[None])
        with pytest.raises(ValueError, match="no switch joins"):
            tree.adding(np.array([[0, 9]]))

    def test_in_a_graph_ways_join_where_they_meet(self):
        graph = graph_from_yaml("""
gpus: [a, b, c, d]
switches: [l0, l1, s]
links:
  - {from: [a, b], to: l0, bandwidth: 1 GB/s}
  - {from: [c, d], to: l1, bandwidth: 1 GB/s}
  - {from: [l0, l1], to: s, bandwidth: 1 GB/s}
""")
        names = [graph.links.name_of(int(link)) for link in graph.adding(np.arange(4)[None])]
        # l0 is as near as s: four cards, l1 to s and s to l0, both ways
        assert len(names) == len(set(names)) == 12
        assert {"a > l0", "l1 > s", "s > l0", "l0 > s"} <= set(names)


def test_two_jobs_on_one_spine_take_turns():
    """Rings of two jobs over the same two leaves: each crosses the spine with one flow each way, and gets half."""
    two8 = lab(4, 2, 100 * MBIT, 50 * MBIT)
    tree = tree_of(two8)
    jobs = [messages_of("ring", "all_reduce", np.array([row]), tree, 8).flows(tree)
            for row in ([0, 1, 4, 5], [2, 3, 6, 7])]  # fmt: skip
    alone = [finish_times(job, tree.links.capacity).max() for job in jobs]
    both = finish_times(joined(jobs, len(tree.links)), tree.links.capacity).max()
    assert both / max(alone) == pytest.approx(2.0)


def test_an_oversubscribed_top_is_crossed_only_twice_by_a_ring():
    """Of a unit's 256 ranks only eight send out, one on each rail, and have all of its ways up."""
    cluster = cluster_of("dgx-h100:1024")
    thin = replace(cluster, levels=(*cluster.levels[:2], replace(cluster.levels[2], oversubscription=4.0)))
    found = prices_on(thin).priced(call_of("all_gather", 1024), "ring")
    assert found.closed_form_s == pytest.approx(found.seconds, rel=1e-9)
    worst = prices_on(thin, deal="alternating").priced(call_of("all_gather", 1024), "ring")
    assert worst.seconds > 3 * found.seconds
