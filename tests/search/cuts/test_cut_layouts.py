"""Trees of layout changes: complete, ordered, and cheaper than changing for every reader by itself."""

from itertools import combinations

import pytest
from small_graphs import problem, straight

from shardwise.plan.search.problems.cuts._layouts import LAYOUTS, collective_of, trees

SETS = [frozenset(chosen) for size in range(1, 6) for chosen in combinations(LAYOUTS, size)]


@pytest.mark.parametrize("root", LAYOUTS)
def test_values_reach_every_reader(root):
    for asked in SETS:
        for arcs in trees(root, asked, False):
            reached = {root}
            for start, end in arcs:
                assert start in reached
                reached.add(end)
            assert asked <= reached
            assert len(reached) == len(arcs) + 1


@pytest.mark.parametrize("root", LAYOUTS)
def test_gradients_run_together(root):
    for given in SETS:
        for arcs in trees(root, given, True):
            left = set(given)
            for start, end in arcs:
                left = (left - {start}) | {end}
            assert left | {root} == {root}


def test_collectives():
    assert collective_of(("partial", "replicated")) == "all_reduce"
    assert collective_of(("partial", "tokens")) == "reduce_scatter"
    assert collective_of(("features", "replicated")) == "all_gather"
    assert collective_of(("features", "tokens")) == "all_to_all"
    assert all(collective_of(("replicated", layout)) is None for layout in LAYOUTS)


def test_zeros_are_not_reduced_for_a_gather():
    """A slice padded with zeros and all-reduced would be whole too; that is no way to gather."""
    assert trees("tokens", frozenset({"replicated"}), False)
    for arcs in trees("tokens", frozenset({"replicated", "partial"}), False):
        assert ("partial", "replicated") not in arcs
    for arcs in trees("replicated", frozenset({"features"}), True):
        assert ("features", "partial") not in arcs
    both = (("tokens", "partial"), ("features", "partial"), ("partial", "replicated"))
    assert sorted(both) in [sorted(arcs) for arcs in trees("replicated", frozenset({"tokens", "features"}), True)]


def test_one_gather_serves_all_readers_and_sums_share_a_reduction():
    task = problem(straight((64, 64), 4, tokens=64))
    value = "w1"
    both = task.spread(value, "partial", (frozenset({"replicated", "tokens", "features"}), False))
    assert both[0] == task.spread(value, "partial", (frozenset({"replicated"}), False))[0]
    together = task.gathered(value, "replicated", frozenset({"partial", "features", "replicated"}))
    assert together[0] == task.gathered(value, "replicated", frozenset({"partial"}))[0]


def test_a_gather_is_repeated_only_where_the_backward_pass_reads_it():
    again, kept = (problem(straight((64, 64), 4, tokens=64), keeps_gathered=keeps) for keeps in (False, True))
    wanted = frozenset({"replicated"})
    once = kept.spread("w1", "tokens", (wanted, True))[0]
    assert again.spread("w1", "tokens", (wanted, False))[0] == once
    assert again.spread("w1", "tokens", (wanted, True))[0] == pytest.approx(2 * once)
