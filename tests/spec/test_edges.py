"""Values at the edge of what is allowed, and sums by hand of the small types of `spec`."""

import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_from_shape
from shardwise.spec.cards import with_cards
from shardwise.spec.cluster import Host
from shardwise.spec.hardware import Electricity
from shardwise.spec.load import cluster_from


def test_a_host_may_have_no_memory_but_not_less() -> None:
    assert Host(memory_bytes=0.0).memory_bytes == 0.0
    for fields in ({"memory_bytes": -1.0}, {"memory_bytes": float("nan")}, {"memory_bytes": 1.0, "rated_watts": -1.0}):
        with pytest.raises(ValueError, match=r"host: memory.*0 or more"):
            Host(**fields)


def test_energy_is_paid_by_the_kilowatt_hour_with_what_the_site_adds() -> None:
    price = Electricity(usd_per_kwh=0.1, pue=1.25, host_share=0.5)
    assert price.usd(3.6e6) == pytest.approx(0.125)
    assert price.usd(7.2e9) == pytest.approx(250.0)


def test_a_model_has_at_least_one_of_each() -> None:
    model = model_from_shape("m", 1, 8, 1, 1, 8, False, 8, tied=True)
    assert replace(model, hidden=1, vocab=1, streams=64).vocab == 1
    for field in ("hidden", "vocab"):
        with pytest.raises(ValueError, match=rf"{field}.* 0.*must be positive"):
            replace(model, **{field: 0})
    for streams in (0, 65):
        with pytest.raises(ValueError, match=f"{streams} residual streams; write 1 to 64"):
            replace(model, streams=streams)


def test_cards_as_stated_change_the_network_and_nothing_inside_a_node() -> None:
    cluster = cluster_from("h100-sxm", 64, 8)
    changed = with_cards(cluster, "2x200Gbps/node", "x")
    for before, after in zip(cluster.levels, changed.levels, strict=True):
        if before.kind == "network":
            assert (after.bandwidth, after.cards) == (pytest.approx(2 * 25e9 / 8), 2)
        else:
            assert after == before
