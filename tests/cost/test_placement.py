"""Strides of the axes, against ranks counted one by one."""

from itertools import product

import numpy as np
import pytest

from shardwise.cost.placement import Placement
from shardwise.spec.policy import Policies, Policy

POLICIES = Policies.of(
    [Policy(tp=4, cp=2, dp=8, pp=3, ep=4), Policy(tp=2, dp=4, pp=2), Policy(tp=8, dp=4, ep=4, etp=2)]
)


def test_strides_of_the_usual_order():
    found = {name: column.tolist() for name, column in Placement().strides(POLICIES).items()}
    assert found["tp"] == [1, 1, 1]
    assert found["cp"] == [4, 2, 8]
    assert found["dp"] == [8, 2, 8]
    assert found["dp_cp"] == [4, 2, 8]
    assert found["pp"] == [64, 8, 32]
    assert found["ep"] == [1, 2, 2]
    assert found["edp"] == [4, 2, 8]


@pytest.mark.parametrize("order", [("tp", "cp", "dp", "pp"), ("tp", "pp", "dp", "cp"), ("tp", "dp", "pp", "cp")])
def test_strides_agree_with_counting(order):
    policy = Policy(tp=2, cp=3, dp=4, pp=5)
    strides = Placement(order).strides(Policies.of([policy]))
    places = product(*(range(getattr(policy, axis)) for axis in reversed(order)))
    rank_of = {tuple(place[::-1]): rank for rank, place in enumerate(places)}
    for index, axis in enumerate(order):
        step = tuple(int(i == index) for i in range(4))
        assert rank_of[step] == strides[axis][0]


def test_expert_groups_fill_the_stage():
    sizes = Placement().sizes(POLICIES)
    stage = POLICIES.dp * POLICIES.cp * POLICIES.tp
    np.testing.assert_array_equal(sizes["etp"] * sizes["ep"] * sizes["edp"], stage)
    strides = Placement().strides(POLICIES)
    np.testing.assert_array_equal(strides["edp"] * sizes["edp"], stage)


def test_order_is_checked():
    with pytest.raises(ValueError, match="write tp first"):
        Placement(("dp", "tp", "cp", "pp"))
