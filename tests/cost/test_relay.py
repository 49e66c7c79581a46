"""A broadcast down a chain: what the way costs, what the bytes cost."""

import numpy as np
import pytest

from shardwise.cost.network import Network, network_of
from shardwise.cost.relay import PIECE, relay_seconds
from shardwise.spec.load import cluster_of

LONG = 1e9


def seconds(bytes_: float, ranks: int, fabric: str = "dgx-a100:1024") -> float:
    return float(relay_seconds(_network(fabric), np.array([bytes_]), np.array([ranks]), np.array([1]))[0])


def _network(fabric: str) -> Network:
    return network_of(cluster_of(fabric))


def test_one_rank_sends_nothing() -> None:
    assert seconds(LONG, 1) == 0.0


def test_the_way_is_linear_in_the_ranks() -> None:
    way = {ranks: seconds(PIECE, ranks) - seconds(PIECE, 8) for ranks in (256, 512, 1024)}
    assert way[512] / way[256] == pytest.approx(2.0, rel=0.05)
    assert way[1024] / way[512] == pytest.approx(2.0, rel=0.05)


def test_a_hop_takes_its_latency_and_one_piece() -> None:
    """128 nodes of 8: 127 hops over cards of 25 GB/s, 896 over NVLink at 0.7757 of 300 GB/s (cost/links.toml)."""
    network = _network("dgx-a100:1024")
    between = (network.cluster.levels[1].latency_s + 13e-6) + PIECE / (0.97 * 25e9)
    inside = (network.cluster.levels[0].latency_s + 3.92e-6) + PIECE / (0.7757 * 300e9)
    assert seconds(PIECE, 1024) == pytest.approx(127 * between + 896 * inside, rel=0.05)


def test_bytes_beyond_a_piece_cost_the_same_on_every_chain() -> None:
    """All cards of a node carry a long message together: 8 x 25 GB/s."""
    further = [seconds(2 * LONG, ranks) - seconds(LONG, ranks) for ranks in (64, 1024)]
    assert further[0] == pytest.approx(further[1], rel=0.02)
    assert further[0] == pytest.approx(LONG / (8 * 25e9 * 0.97), rel=0.1)


def test_gpus_that_share_cards_pass_a_piece_at_the_pace_of_a_card() -> None:
    """p4d: four cards of 100 Gb/s for eight GPUs."""
    network = _network("aws-p4d:1024")
    assert network.cluster.gpus_per_card(1) == 2.0
    hop = network.cluster.levels[1].latency_s + 13e-6 + PIECE / 12.5e9
    inside = network.cluster.levels[0].latency_s + 3.92e-6 + PIECE / (0.7757 * 300e9)
    assert seconds(PIECE, 1024, "aws-p4d:1024") == pytest.approx(127 * hop + 896 * inside, rel=0.05)
