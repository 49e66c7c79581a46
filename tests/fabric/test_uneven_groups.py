"""Rings of groups whose nodes hold different numbers of their ranks: closed form against the links."""

import numpy as np
import pytest

from shardwise.cost.network import network_of
from shardwise.cost.placement import level_members
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.tree_build import tree_of
from shardwise.plugins.collectives import collective
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policy


def rings_between_nodes(held: tuple[int, ...]) -> tuple[dict[int, int], dict[int, int]]:
    """Rings that leave each rank, and that come to each, over the network."""
    (each,) = collective("ring").uneven("all_reduce", held, 8)
    node = np.repeat(np.arange(len(held)), held)
    away = node[each.source] != node[each.target]
    return tuple(dict(zip(*np.unique(end[away], return_counts=True), strict=True))
                 for end in (each.source, each.target))  # fmt: skip


@pytest.mark.parametrize("held", [(8, 8, 7), (1, 8, 6), (3, 8, 8, 5), (4, 8), (2, 4), (12, 20)])
def test_a_ring_for_each_card_of_the_smallest_node(held):
    rings = min(*held, 8)
    for end in rings_between_nodes(held):
        assert set(end.values()) == {1}
        assert len(end) == rings * len(held)


def test_groups_of_63_lie_differently():
    cluster = cluster_from("h100", 504, 8)
    assert float(level_members(cluster, 63, 1).cards) == 1
    cards = [float(level_members(cluster, 63, 1, within=(63 * k, 63 * (k + 1))).cards) for k in range(8)]
    assert cards == [7, 1, 2, 3, 3, 2, 1, 7]
    assert float(level_members(cluster_from("h100", 63, 8), 63, 1).cards) == 7
    assert float(level_members(cluster_from("h100", 512, 8), 64, 1).cards) == 8


@pytest.mark.parametrize(("gpus", "dp", "pp"), [(504, 63, 8), (63, 63, 1), (24, 12, 2), (96, 12, 8), (60, 20, 3)])
def test_links_and_closed_form_price_a_stage_alike(gpus, dp, pp):
    cluster = cluster_from("h100", gpus, 8)
    network, tree = network_of(cluster), tree_of(cluster)
    prices = Prices(tree, network, seats_of(Policy(dp=dp, pp=pp), tree))
    for stage in range(pp):
        call = PlacedMessage(name="", axis="dp", lane="grad", phase="step", op="all_reduce", bytes=1e9,
                             count=1.0, group="dp", ranks=dp, stride=1, stage=stage if pp > 1 else -1)  # fmt: skip
        law = network.law("all_reduce", dp, 1, algorithm="ring", within=(stage * dp, (stage + 1) * dp))
        assert prices.alone(call, "ring").seconds == pytest.approx(float(law.slope[:, law.group].min()), rel=0.01)
