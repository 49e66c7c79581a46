"""Measured collectives against the expectation: sound ones pass, a fault is found and its level named."""

import numpy as np
import pytest

from shardwise.cost.network import network_of
from shardwise.measured.diagnose.expect import band_of, bus_factor, expect
from shardwise.spec.load import cluster_of

H100 = cluster_of("dgx-h100:64")
SIZES = 2.0 ** np.arange(14, 35)


def points(op="all_reduce", ranks=64, cluster=H100, factor=1.0, **change):
    seconds = network_of(cluster, **change).seconds(op, SIZES, ranks) / factor
    nodes = max(ranks // 8, 1)
    return [
        {"op": op, "bytes": float(b), "ranks": ranks, "nodes": nodes, "seconds": float(s)}
        for b, s in zip(SIZES, seconds, strict=True)
    ]


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("ranks", [8, 64])
def test_a_sound_cluster_is_as_expected(op, ranks):
    found = expect(points(op, ranks), H100)
    assert not found.low
    assert all(verdict.ratio == pytest.approx(1.0) for verdict in found.verdicts)
    assert not found.suspects
    assert not found.explanation


def test_half_of_the_cards():
    found = expect(points(efficiency={"leaf": 0.5}), H100)
    assert found.low
    assert not found.latency
    assert found.suspects[0].level == "leaf"
    assert found.suspects[0].part == pytest.approx(0.5, rel=0.05)
    assert found.explanation.startswith("leaf at 0.5 of its bandwidth")
    assert {v.word for v in found.verdicts if v.bytes >= 2**30} == {"low"}


def test_switches_that_do_not_add():
    found = expect(points(ranks=8, nvls=False), H100)
    assert found.low
    assert "NVLS off" in found.explanation


def test_only_short_messages_low():
    rows = points()
    slow = [row | {"seconds": row["seconds"] * (4.0 if row["bytes"] < 1e5 else 1.0)} for row in rows]
    found = expect(slow, H100)
    assert found.low
    assert found.latency
    assert not found.explanation


def test_a_few_low_sizes_are_no_verdict():
    rows = points()
    slow = [row | {"seconds": row["seconds"] * (1.5 if row["bytes"] in (2**26, 2**28) else 1.0)} for row in rows]
    found = expect(slow, H100)
    assert [v.bytes for v in found.verdicts if v.word == "low"] == [2**26, 2**28]
    assert not found.low


def test_faster_than_expected_is_not_low():
    found = expect(points(factor=3.0), H100)
    assert not found.low
    assert {verdict.word for verdict in found.verdicts} == {"high"}


def test_bands_are_around_the_expectation_and_narrower_for_long_messages():
    for nodes in (1, 8):
        wide, narrow = band_of(nodes, 1e4), band_of(nodes, 1e9)
        assert -1.0 < wide.low < 0.05
        assert -0.5 < narrow.low < 0.05 < narrow.high - narrow.low < wide.high - wide.low


def test_more_ranks_than_the_cluster_has():
    with pytest.raises(ValueError, match="write a larger one"):
        expect(points(), cluster_of("dgx-h100:8"))


def test_bus_factors_of_nccl_tests():
    assert bus_factor("all_reduce", 8) == pytest.approx(1.75)
    assert bus_factor("all_gather", 8) == pytest.approx(0.875)
    assert bus_factor("send", 8) == 1.0
