"""Who sends to whom: facts of single algorithms that sums do not show."""

import numpy as np
import pytest

from shardwise.plugins.collectives import FABRIC_SWITCH, NODE_SWITCH, Shape, collective, collectives


def flows(name, op, ranks, local):
    return [
        (int(s), int(t), float(f) * each.times)
        for each in collective(name).flows(op, ranks, local)
        for s, t, f in zip(each.source, each.target, each.fraction, strict=True)
    ]


@pytest.mark.parametrize("name", ["ring", "tree", "nvls_tree", "two_level", "halving_doubling"])
def test_network_flows_keep_to_their_rail_and_load_all_cards_alike(name):
    out = np.zeros(32)
    for source, target, fraction in flows(name, "all_reduce", 32, 8):
        if min(source, target) >= 0 and source // 8 != target // 8:
            assert source % 8 == target % 8
            out[source] += fraction
    by_card = out.reshape(4, 8)
    assert (by_card > 0).all()
    np.testing.assert_allclose(by_card, by_card[:, :1].repeat(8, axis=1))


def test_the_second_phase_of_a_hierarchical_exchange_keeps_to_the_rail_and_pairwise_does_not():
    crossing = [(s, t) for s, t, _ in flows("hierarchical", "all_to_all", 16, 4) if s // 4 != t // 4]
    assert crossing
    assert all(s % 4 == t % 4 for s, t in crossing)
    assert any(s % 4 != t % 4 for s, t, _ in flows("pairwise", "all_to_all", 16, 4) if s // 4 != t // 4)


def test_pat_sends_little_far_and_much_near():
    rounds = list(collective("pat").flows("all_gather", 16, 1))
    distances = [int(each.target[0] - each.source[0]) % 16 for each in rounds]
    assert distances == [8, 4, 2, 1]
    assert [each.fraction[0] * 16 for each in rounds] == [1, 2, 4, 8]
    back = list(collective("pat").flows("reduce_scatter", 16, 1))
    assert [each.fraction[0] * 16 for each in back] == [8, 4, 2, 1]


def test_halving_sends_much_near_and_little_far():
    rounds = list(collective("halving_doubling").flows("all_reduce", 8, 1))
    assert [(int(each.target[0]), float(each.fraction[0])) for each in rounds[:3]] == [(1, 0.5), (2, 0.25), (4, 0.125)]


def test_a_server_carries_everything_and_shards_spread_it():
    into = np.zeros(8)
    for _, target, fraction in flows("parameter_server", "all_reduce", 8, 8):
        into[target] += fraction
    assert into.tolist() == [7.0] + [1.0] * 7
    spread = np.zeros(8)
    for _, target, fraction in flows("sharded_server", "all_reduce", 8, 8):
        spread[target] += fraction
    np.testing.assert_allclose(spread, 2 * 7 / 8)


def test_switches_that_add():
    ends = {end for s, t, _ in flows("nvls", "all_reduce", 16, 8) for end in (s, t) if end < 0}
    assert ends == {NODE_SWITCH, FABRIC_SWITCH}
    assert {end for s, t, _ in flows("sharp", "all_reduce", 16, 8) for end in (s, t) if end < 0} == {FABRIC_SWITCH}
    up = sum(f for s, t, f in flows("nvls", "all_reduce", 16, 8) if t == FABRIC_SWITCH)
    assert up == pytest.approx(2.0), "each of two nodes hands its sum up once"


def test_log2_steps_of_one_peer_gossip_give_the_exact_mean():
    """The farthest step is the file's; the nearer ones are its steps on halves of the ranks."""
    values = np.arange(8.0)
    for ranks in (8, 4, 2):
        blocks = values.reshape(-1, ranks)
        arrays = [[np.array([value]) for value in block] for block in blocks]
        ran = [collective("gossip_exponential").run("neighbor_average", block, 1).results for block in arrays]
        values = np.array([float(result[0]) for results in ran for result in results])
    np.testing.assert_allclose(values, 3.5)


@pytest.mark.parametrize("name", [n for n, c in collectives().items() if c.style != "pairwise" and "tree" not in n])
@pytest.mark.parametrize(("local", "nodes"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_the_latency_law_counts_the_rounds(name, local, nodes):
    found = collective(name)
    if found.spans_nodes and nodes == 1:
        return
    for op in found.ops:
        load = found.load(op, Shape(np.array([[float(local)], [float(local * nodes)]])))
        assert load.steps.sum() == found.rounds(op, local * nodes, local)


def test_thousands_of_ranks_are_told_in_few_rounds():
    rounds = list(collective("ring").flows("all_reduce", 1024, 8))
    assert len(rounds) == 1
    assert rounds[0].times == 2 * 1023
    assert len(rounds[0].source) == 8 * 1024
