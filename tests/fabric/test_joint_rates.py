"""Traffic that shares links: classes of equal flows, rates of rows together, and durations between bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.duration import duration_of
from shardwise.fabric.fold import classes_of
from shardwise.fabric.phases import messages_of
from shardwise.fabric.shares import Row, SharedLinks, together
from shardwise.fabric.solver import Flows, finish_times, max_min
from shardwise.spec.load import cluster_of


def random_flows(seed: int, flows: int, links: int) -> tuple[Flows, np.ndarray]:
    generator = np.random.default_rng(seed)
    table = np.stack([generator.permutation(links)[:3] for _ in range(flows)])
    table[generator.random(table.shape) < 0.2] = links
    return Flows(table, generator.choice([1.0, 2.0], flows)), generator.choice([1.0, 3.0], links)


class TestClasses:
    @given(st.integers(0, 10_000))
    @settings(max_examples=40, deadline=None)
    def test_rates_of_the_classes_are_those_of_the_flows(self, seed):
        flows, capacity = random_flows(seed, 12, 5)
        flows = Flows(np.tile(flows.links, (2, 1)), np.tile(flows.bytes, 2))  # so that some are alike
        used = (flows.links < len(capacity)).any(axis=1)
        classes, room, _ = classes_of(Flows(flows.links[used], flows.bytes[used]), capacity)
        whole = max_min(flows.links[used], capacity)
        small = max_min(classes.links, room, weight=classes.weight)
        assert sorted(set(np.round(whole, 9))) == sorted(set(np.round(small, 9)))
        ends = finish_times(Flows(flows.links[used], flows.bytes[used]), capacity).max()
        assert finish_times(classes, room).max() == pytest.approx(ends)

    def test_an_exchange_of_512_ranks_is_three_flows(self):
        tree = tree_of(cluster_of("dgx-h100:512"), Wiring(cross_rail="spine"))
        flows = messages_of("pairwise", "all_to_all", np.arange(512)[None], tree, 8).flows(tree)
        classes, room, of_link = classes_of(flows, tree.links.capacity)
        assert len(flows) == 512 * 511
        assert len(classes) == len(room) == 3  # inside a node, inside a unit, between units; node, card and spine links
        np.testing.assert_allclose(room[of_link], tree.links.capacity)


class TestDuration:
    def test_exact_where_classes_are_few(self):
        found = duration_of(Flows(np.array([[0, 1], [1, 2]]), np.array([1.0, 3.0])), np.array([1.0, 1.0, 2.0]))
        assert found.exact
        assert found.seconds == pytest.approx(4.0)

    def test_bounds_are_told_where_they_are_not(self, monkeypatch):
        flows, capacity = random_flows(3, 60, 12)
        exact = finish_times(flows, capacity).max()
        monkeypatch.setattr("shardwise.fabric.duration.EXACT", 0)
        found = duration_of(flows, capacity)
        assert not found.exact
        assert found.least <= exact <= found.seconds

    def test_hashed_exchanges_are_as_long_as_their_busiest_link(self):
        """57,000 different flows: too many for the loop, and the two bounds meet."""
        tree = tree_of(cluster_of("dgx-h100:1024"), Wiring(routing="ecmp"))
        flows = messages_of("pairwise", "all_to_all", np.arange(1024).reshape(-1, 64), tree, 8).flows(tree)
        assert duration_of(flows, tree.links.capacity).exact

    def test_nothing_takes_no_time(self):
        assert duration_of(Flows(np.zeros((0, 1), dtype=np.int64), np.zeros(0)), np.ones(1)).seconds == 0.0


def shared_of(wires, longest=None, axes=None) -> SharedLinks:
    rates = longest or [1.0] * len(wires)
    names = axes or [f"axis{i}" for i in range(len(wires))]
    return SharedLinks(tuple(
        Row(name, name, 0, np.array(wire), np.array(wire), rate) for wire, rate, name in
        zip(wires, rates, names, strict=True)
    ))  # fmt: skip


class TestTogether:
    def test_two_equal_rows_take_half_each(self):
        state = shared_of([[1.0, 0.0], [1.0, 1.0]]).state(((0, 1.0), (1, 1.0)))
        assert list(state.paces.values()) == pytest.approx([0.5, 0.5])
        assert state.lost == {("axis0", "axis1"): pytest.approx(0.5), ("axis1", "axis0"): pytest.approx(0.5)}

    def test_what_one_cannot_use_the_other_gets(self):
        state = shared_of([[1.0], [1.0]]).state(((0, 0.2), (1, 1.0)))
        assert list(state.paces.values()) == pytest.approx([0.2, 0.8])

    def test_many_short_messages_take_more_than_one_long_one(self):
        """Fair by message: a row of 9 messages on the link gets nine shares."""
        state = shared_of([[1.0], [1.0]], longest=[1.0, 9.0]).state(((0, 1.0), (1, 1.0)))
        assert state.paces[0, 1.0] / state.paces[1, 1.0] == pytest.approx(9.0)

    def test_rows_that_meet_nowhere_run_as_alone(self):
        state = shared_of([[1.0, 0.0], [0.0, 1.0]]).state(((0, 1.0), (1, 1.0)))
        assert list(state.paces.values()) == [1.0, 1.0]
        assert not state.lost

    @given(st.integers(0, 10_000))
    @settings(max_examples=60, deadline=None)
    def test_no_link_is_asked_for_more_than_it_has_and_someone_waits_for_each_row(self, seed):
        generator = np.random.default_rng(seed)
        wire = np.where(generator.random((6, 8)) < 0.4, generator.random((6, 8)), 0.0)
        most, longest = generator.uniform(0.3, 1.0, 6), generator.uniform(0.5, 5.0, 6)
        pace, binding = together(wire, most, longest)
        load = pace @ wire
        assert (load <= 1.0 + 1e-9).all()
        assert (pace <= most + 1e-12).all()
        for row, link in enumerate(binding):
            if link < 0:
                assert pace[row] == pytest.approx(most[row])
            else:
                assert load[link] == pytest.approx(1.0)
                sharing = wire[:, link] > 0
                # nobody on the link that holds it back has more of it than this row
                assert (pace * longest)[row] >= (pace * longest)[sharing].max() * (1 - 1e-6)
