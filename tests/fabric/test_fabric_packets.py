"""Collectives as packets on link graphs: beside fluid rates, over hashed ways, with the rules that fit a fabric."""

import numpy as np
import pytest
from msgspec.structs import replace
from test_fabric_step import step_of

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.broken import slowed
from shardwise.fabric.ends import ends_of
from shardwise.fabric.packet_fabric import Traffic, network_of, packet_fabric, packet_run, traffic_of
from shardwise.fabric.packet_rules import fitted, headroom_of, usual_rules
from shardwise.fabric.packets import Rules
from shardwise.fabric.requirement import card_rate, requirement_of
from shardwise.fabric.whatif import variants_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy

QUIET = [
    ("llama-3-8b", "dgx-h100:64", Policy(tp=4, pp=2, dp=8)),
    ("mixtral-8x7b", "dgx-h100:64", Policy(tp=2, dp=32, ep=16)),
    ("llama-3-8b", "hgx-h100-roce:128", Policy(tp=8, dp=16)),
    ("llama-3-8b", "dgx-h100:512", Policy(tp=8, pp=4, dp=16, vpp=2, schedule="interleaved")),
    ("llama-3-8b", "ethernet-100g-a100:64", Policy(dp=64, zero=3)),
]


def rules_for(load, on, layer=""):
    rules = usual_rules(cluster_of(on))
    rules = replace(rules, layer=layer) if layer else rules
    return fitted(rules, network_of(packet_fabric(load.prices.fabric, 0)), card_rate(load))


def kinds(load):
    """One call of each kind that may leave its node."""
    found = {}
    for p in load.priced:
        found.setdefault((p.call.op, p.call.ranks, p.call.group), p)
    return list(found.values())


@pytest.mark.parametrize(("model", "on", "policy"), QUIET)
def test_packets_are_within_5_percent_of_rates_where_nothing_is_congested(model, on, policy):
    load, _ = step_of(model, on, policy)
    rules, followed = rules_for(load, on), 0
    for p in kinds(load):
        traffic = traffic_of(load.prices, p.call, p.algorithm, rules, 3000)
        if traffic is not None:
            run = packet_run(traffic, rules)
            followed += 1
            assert run.times == pytest.approx(1.0, abs=0.05), (p.call.op, p.call.ranks)
            assert run.outcome.drops.sum() == 0
    assert followed


@pytest.mark.parametrize("on", ["dgx-h100:64", "dgx-h100:2048", "hgx-h100-roce:6144", "ethernet-100g-a100:256"])
@pytest.mark.parametrize("wiring", [Wiring(routing="ecmp"), Wiring(), Wiring(rails="none", routing="ecmp")])
def test_links_of_a_way_meet_in_switches(on, wiring):
    tree = tree_of(cluster_of(on), wiring)
    source, target = ends_of(tree)
    random = np.random.default_rng(1)
    ends = random.integers(0, tree.gpus, (2, 200))
    for row in tree.routes(ends[0], ends[1]).links:
        way = row[row < len(tree.links)]
        way = way[tree.links.level[way] > 0]
        if len(way):
            assert source[way[0]] == target[way[-1]] == -1
            assert (target[way[:-1]] == source[way[1:]]).all()
            assert (source[way[1:]] >= 0).all()


def ways_used(hashes):
    """Links from spines to cores that all pairs of two pods use."""
    tree = tree_of(cluster_of("dgx-h100:2048"), Wiring(routing="ecmp", hashes=hashes, connections=8))
    source = np.arange(0, 1024, 3)
    links = np.unique(tree.routes(source, source + 1024).links)
    cores = links[(links >= tree.offsets[6]) & (links < tree.offsets[7])]
    return len(cores), tree.tiers[2].fan


def test_one_hash_on_every_tier_leaves_links_unused():
    (distinct, fan), (same, _) = ways_used("distinct"), ways_used("same")
    assert fan == 2
    # 16 ways to a spine decide, modulo 2, which of its 2 ways to a core: half of them never carry anything
    assert same == distinct / 2


def test_ways_in_turn_are_all_used_once_before_any_twice():
    tree = tree_of(cluster_of("dgx-h100:1024"), Wiring(routing="ecmp", hashes="turn", connections=16))
    links = tree.routes(np.array([0]), np.array([600])).links
    up = links[(links >= tree.offsets[4]) & (links < tree.offsets[5])]
    assert len(np.unique(up)) == len(up) == tree.tiers[1].fan == 16


def test_hashed_ways_collide_where_sprayed_packets_do_not():
    rail = np.arange(32) * 8
    times, deepest = [], []
    for wiring, ways in ((Wiring(), 16), (Wiring(routing="ecmp"), 1)):
        fabric = packet_fabric(tree_of(cluster_of("dgx-h100:1024"), wiring), 0)
        traffic = Traffic(fabric, rail, rail + 256, np.full(32, 150e3), 1.0, 32, 4, ways)
        run = packet_run(traffic, Rules(layer="credits", control="none"))
        times.append(run.outcome.seconds)
        deepest.append(run.outcome.deepest_bytes[network_of(fabric).source >= 0].max())
    assert times[1] > 1.4 * times[0]
    assert deepest[1] > 4 * deepest[0]


def test_only_a_part_is_followed_where_there_is_too_much():
    load, _ = step_of("mixtral-8x7b", "dgx-h100:64", Policy(tp=2, dp=32, ep=16))
    exchange = next(p for p in kinds(load) if p.call.op == "all_to_all")
    rules = rules_for(load, "dgx-h100:64")
    small, large = (traffic_of(load.prices, exchange.call, exchange.algorithm, rules, n) for n in (3000, 10**8))
    assert len(small.bytes) < len(large.bytes) == large.whole == small.whole
    assert large.share == 1.0
    assert small.share < 1.0
    packets = np.ceil(small.bytes / rules.payload).sum() * small.hops
    assert packets <= 2 * 3000


def test_rules_follow_from_rates_and_delays():
    load, _ = step_of("llama-3-8b", "hgx-h100-roce:128", Policy(tp=8, dp=16))
    network = network_of(packet_fabric(load.prices.fabric, 0))
    found = rules_for(load, "hgx-h100-roce:128")
    assert found.headroom_bytes == headroom_of(network, found) > 2 * (4096 + 82)
    assert found.mark_low_bytes == 50e9 * 10e-6
    credits = rules_for(load, "dgx-h100:64")
    assert (credits.layer, credits.mark_high_bytes, credits.control) == ("credits", 0.0, "none")


@pytest.mark.parametrize(("on", "held"), [("hgx-h100-roce:64", "pfc"), ("dgx-h100:64", "credits")])
def test_what_ifs_come_from_packets_and_speak_of_the_fabrics_own_link_layer(on, held):
    load, _ = step_of("mixtral-8x7b", on, Policy(tp=2, dp=32, ep=16))
    found = {variant.name: variant for variant in variants_of(load)}
    assert {"incast", held} <= set(found)
    assert ("pfc" in found) == (held == "pfc")
    exchange = next(p.call for p in load.priced if p.call.op == "all_to_all")
    other = next(p.call for p in load.priced if p.call.op == "reduce_scatter" and p.call.ranks == 32)
    assert found["incast"].slower(other) == 1.0
    assert 1.0 <= found["incast"].slower(exchange) == found[held].slower(exchange) < 1.2


def test_infiniband_is_not_advised_about_pauses_or_marks():
    for on, ethernet in (("hgx-h100-roce:64", True), ("dgx-h100:64", False)):
        load, _ = step_of("llama-3-8b", on, Policy(dp=64, zero=3))
        need = requirement_of(load, 1.0)
        said = " ".join(watch.what for watch in need.watch)
        assert ("PFC" in said) == ("ECN" in said) == (need.ecn_mark_bytes > 0) == ethernet


def test_slow_links_are_followed_over_hashed_ways_only():
    load, _ = step_of("llama-3-8b", "dgx-h100:64", Policy(dp=64, zero=3))
    fabric = slowed(load.prices.fabric, "node 0 gpu 0 > leaf 0.0", 0.5)
    with pytest.raises(ValueError, match=r"packets: .*--routing ecmp"):
        packet_fabric(fabric, 0)
    hashed = slowed(tree_of(cluster_of("dgx-h100:64"), Wiring(routing="ecmp")), "node 0 gpu 0 > leaf 0.0", 0.5)
    assert packet_fabric(hashed, 3).links is hashed.links


def test_a_link_layer_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="link_layer is 'token ring'; write ethernet"):
        replace(cluster_of("dgx-h100:64"), link_layer="token ring")
    assert Rules().layer == "pfc"
