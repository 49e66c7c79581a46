"""Collectives on a torus of neighbours against the laws of the text."""

import numpy as np
import pytest

from shardwise.cost.network import network_of
from shardwise.plugins.collectives import Shape, collective
from shardwise.spec.load import cluster_of


def load(op, *sizes, torus):
    return collective("torus").load(op, Shape(np.array([[float(size)] for size in sizes]), torus=torus))


def test_the_farthest_chip_is_half_of_every_axis_away():
    assert load("all_gather", 64, torus=((4, 4, 4),)).steps[0, 0] == 6
    assert load("all_reduce", 64, torus=((4, 4, 4),)).steps[0, 0] == 12
    assert load("all_gather", 256, torus=((16, 16),)).steps[0, 0] == 16
    assert load("all_gather", 4, torus=((16, 16),)).steps[0, 0] == 3  # a line does not close


@pytest.mark.parametrize(("axes", "link"), [((4, 4, 4), 90e9), ((16, 16), 45e9)])
def test_an_all_to_all_takes_the_time_of_the_bisection(axes, link):
    """Half of all bytes cross the middle of the longest axis, over two links of every line: B x length / (8 x link)."""
    chips = int(np.prod(axes))
    volume = load("all_to_all", chips, torus=(axes,)).volume[0, 0]
    assert volume / (2 * len(axes) * link) == pytest.approx(max(axes) / (8 * link))


def test_across_cubes_the_faces_bound_it():
    """8,960 chips of a v5p pod: the axis of 28."""
    volume = load("all_to_all", 64, 8960, torus=((4, 4, 4), (4, 5, 7))).volume[1, 0]
    assert volume / 135e9 == pytest.approx(28 / (8 * 90e9), rel=0.03)  # seven cubes are odd: 12 of 7 x 7 / 4


def test_chips_take_it_unasked_and_nothing_that_needs_a_switch():
    found = network_of(cluster_of("tpu-v5p:64"))
    for op in ("all_gather", "all_reduce", "all_to_all"):
        assert set(found.breakdown(op, [1e5, 1e8], 64).algorithm) == {"torus"}
    assert set(network_of(cluster_of("dgx-h100:64")).law("all_gather", 64).algorithm) & {"torus"} == set()
    with pytest.raises(ValueError, match="cannot run all_gather"):
        found.seconds("all_gather", 1e6, 64, algorithm="direct")


def test_a_torus_that_does_not_hold_its_level_is_refused():
    from msgspec.structs import replace

    level = cluster_of("tpu-v5p:64").levels[0]
    with pytest.raises(ValueError, match=r"torus .* write two or more along each axis, 64"):
        replace(level, torus=(4, 4))
