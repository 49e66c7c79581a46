"""Max-min rates: known answers, the slow reference, and what must hold for any flows."""

import numpy as np
import pytest
from filling import progressive_filling
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.solver import Flows, finish_times, joined, max_min
from shardwise.spec.load import cluster_of

CLOSE = 1e-6


def random_case(seed, flows=60, links=25, longest=5):
    random = np.random.default_rng(seed)
    table = np.full((flows, longest), links)
    for row in table:
        taken = random.choice(links, size=random.integers(0, longest + 1), replace=False)
        row[: len(taken)] = taken
    return table, random.uniform(1.0, 100.0, links), random


class TestRates:
    def test_one_link_is_shared_and_the_rest_is_used(self):
        # A and B share link 0 (10); B alone is limited to 2 on link 1; C takes link 2 (5) with A
        links = np.array([[0, 2, 3], [0, 1, 3], [2, 3, 3]])
        np.testing.assert_allclose(max_min(links, np.array([10.0, 2.0, 5.0])), [2.5, 2.0, 2.5])

    def test_a_flow_without_links_is_infinitely_fast(self):
        assert max_min(np.array([[1], [0]]), np.array([7.0])).tolist() == [np.inf, 7.0]

    def test_no_flows(self):
        assert len(max_min(np.zeros((0, 3), dtype=np.int64), np.ones(2))) == 0

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 10**6))
    def test_agrees_with_progressive_filling(self, seed):
        links, capacity, _ = random_case(seed)
        np.testing.assert_allclose(max_min(links, capacity), progressive_filling(links, capacity), rtol=CLOSE)

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 10**6))
    def test_agrees_with_weights_and_counts(self, seed):
        links, capacity, random = random_case(seed)
        weight, count = random.uniform(0.1, 2.0, links.shape), random.integers(1, 5, len(links)).astype(float)
        found = max_min(links, capacity, weight=weight, count=count)
        np.testing.assert_allclose(found, progressive_filling(links, capacity, weight, count), rtol=CLOSE)

    def test_agrees_on_a_fat_tree(self):
        tree = tree_of(cluster_of("dgx-h100:1024"), Wiring(routing="ecmp", seed=3))
        random = np.random.default_rng(0)
        routes = tree.routes(random.integers(0, 1024, 400), random.integers(0, 1024, 400))
        capacity = tree.links.capacity
        np.testing.assert_allclose(
            max_min(routes.links, capacity), progressive_filling(routes.links, capacity), rtol=CLOSE
        )

    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 10**6))
    def test_no_link_is_overfull_and_every_flow_has_a_full_one(self, seed):
        links, capacity, random = random_case(seed)
        rates = max_min(links, capacity)
        moving = np.isfinite(rates)
        used = np.bincount(
            links[moving].ravel(), weights=np.repeat(rates[moving], links.shape[1]), minlength=len(capacity) + 1
        )[:-1]
        assert (used <= capacity * (1 + CLOSE)).all()
        full = np.append(used >= capacity * (1 - CLOSE), False)
        assert full[links[moving]].any(axis=1).all()
        order = random.permutation(len(links))
        np.testing.assert_allclose(max_min(links[order], capacity), rates[order], rtol=CLOSE)


class TestFolding:
    def test_equal_flows_are_one_row(self):
        flows = Flows(np.array([[0, 1], [1, 0], [0, 2], [0, 1]]), np.array([5.0, 5.0, 5.0, 4.0]))
        folded = flows.folded()
        assert len(folded) == 3
        assert folded.count is not None
        assert sorted(folded.count.tolist()) == [1.0, 1.0, 2.0]
        np.testing.assert_allclose(folded.link_bytes(3), flows.link_bytes(3))

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 10**6))
    def test_folding_changes_no_rate(self, seed):
        links, capacity, random = random_case(seed, flows=20, longest=3)
        again = random.integers(0, 20, 60)
        flows = Flows(links[again], np.ones(60))
        rates = max_min(flows.links, capacity)
        folded = flows.folded()
        few = max_min(folded.links, capacity, count=folded.count)
        assert set(np.round(few, 6)) == set(np.round(rates, 6))


class TestTime:
    def test_the_rest_speeds_up_when_a_flow_ends(self):
        flows = Flows(np.array([[0], [0]]), np.array([10.0, 30.0]))
        # 5 each until 2 s, then 10: 10 + 20 / 10
        np.testing.assert_allclose(finish_times(flows, np.array([10.0])), [2.0, 4.0])

    def test_nothing_to_send_takes_no_time(self):
        assert finish_times(Flows(np.array([[0]]), np.array([0.0])), np.array([1.0])).tolist() == [0.0]

    def test_all_bytes_arrive(self):
        links, capacity, random = random_case(7, longest=3)
        links = links[(links < 25).any(axis=1)]
        sizes = random.uniform(1.0, 9.0, len(links))
        ends = finish_times(Flows(links, sizes), capacity)
        slowest = np.bincount(links.ravel(), weights=np.repeat(sizes, 3), minlength=26)[:25] / capacity
        assert ends.max() >= slowest.max() * (1 - CLOSE)
        loose = finish_times(Flows(links, sizes), capacity, within=0.05)
        np.testing.assert_allclose(loose, ends, rtol=0.1)

    def test_a_dead_link_is_said(self):
        with pytest.raises(ValueError, match="no path left"):
            finish_times(Flows(np.array([[0]]), np.array([1.0])), np.array([0.0]))

    def test_joined_flows_share(self):
        one, two = Flows(np.array([[0]]), np.array([10.0])), Flows(np.array([[1, 0]]), np.array([10.0]))
        both = joined([one, two], 2)
        np.testing.assert_allclose(finish_times(both, np.array([10.0, 10.0])), [2.0, 2.0])
