"""Prices of a fabric's parts: the catalog's file, a user's, and what a tree of them costs."""

import pytest
from msgspec.structs import replace

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.part_prices import bill_of, part_prices, priced_at
from shardwise.spec.load import cluster_of

PLAIN = """
[[card]]
gbps = 400
usd = 1000
[[switch_port]]
gbps = 400
usd = 100
[[module]]
gbps = 400
usd = 10
[fibre]
usd = 1
[[nvlink]]
gpus = 8
usd_per_gpu = 5
"""


def plain(tmp_path, text=PLAIN):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    return part_prices(path)


def test_every_price_of_the_catalog_has_a_source_and_a_date():
    found = part_prices()
    assert len(found.sources) == 9
    assert not any("not stated" in source for source in found.sources)


def test_a_superpod_by_hand(tmp_path):
    """1,024 cards, 2,048 cables with two modules, 1,024 ports to cards and 2,048 between leaves and spines."""
    bill = bill_of(tree_of(cluster_of("dgx-h100:1024")), plain(tmp_path))
    assert bill.cards == 1000
    assert bill.switch_ports == pytest.approx(100 * 3)
    assert bill.optics == pytest.approx(2 * 21)
    assert bill.nvlink == 5
    assert bill.total == pytest.approx(1347)


def test_less_above_the_leaves_is_cheaper_and_rail_only_cheapest(tmp_path):
    cluster, prices = cluster_of("dgx-h100:1024"), plain(tmp_path)
    thin = replace(cluster, levels=(*cluster.levels[:2], replace(cluster.levels[2], oversubscription=4.0)))
    full, less = (bill_of(tree_of(c), prices).total for c in (cluster, thin))
    assert less == pytest.approx(full - (2 * 100 + 21) * 0.75)
    unit = cluster_of("dgx-h100:256")
    assert bill_of(tree_of(unit, Wiring(rails="only")), prices).total < bill_of(tree_of(unit), prices).total


def test_speeds_between_and_beyond():
    points = ((100.0, 500.0), (400.0, 700.0))
    assert priced_at(points, 400) == 700
    assert 500 < priced_at(points, 200) < 700
    assert priced_at(points, 800) == 1400
    assert priced_at(points, 50) == 250


@pytest.mark.parametrize(("old", "new", "said"), [
    ("usd = 1000", "usd = 'x'", r"card\[0\]\.usd is"), ("usd = 1000", "usd = -1", "write a number"),
    ("usd = 1000", "usd = true", "write a number"), ("[fibre]\nusd = 1\n", "", "fibre is missing"),
    ("gbps = 400", "gbsp = 400", "gbps is missing"), ("[[card]]", "[[card]", "not TOML"),
])  # fmt: skip
def test_mistakes_are_named(tmp_path, old, new, said):
    with pytest.raises(ValueError, match=said):
        plain(tmp_path, PLAIN.replace(old, new, 1))


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        part_prices(tmp_path / "nowhere.toml")
