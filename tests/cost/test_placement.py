"""Strides of the axes, against ranks counted one by one."""

from itertools import product

import numpy as np
import pytest

from shardwise.cost.placement import Placement
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import ORDERS, Policies, Policy
from shardwise.spec.rules import verdict_of

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


@pytest.mark.parametrize("name", ORDERS)
def test_strides_agree_with_counting(name):
    policy, order = Policy(tp=2, cp=3, dp=4, pp=5, order=name), name.split("-")
    strides = Placement().strides(Policies.of([policy]))
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


def test_each_policy_has_its_own_order():
    policies = [Policy(tp=2, cp=3, dp=4, pp=5, order=name) for name in ORDERS]
    together = Placement().strides(Policies.of(policies))
    for row, policy in enumerate(policies):
        alone = Placement().strides(Policies.of([policy]))
        assert {axis: column[row] for axis, column in together.items()} == {a: c[0] for a, c in alone.items()}


def test_experts_need_the_ranks_of_a_stage_together():
    model, cluster, job = model_of("mixtral-8x7b"), cluster_of("dgx-h100:64"), Job(seq=4096, global_batch=64)
    policy = Policy(dp=8, tp=2, pp=4, ep=8, order="tp-pp-cp-dp")
    verdict = verdict_of(model, cluster, job, policy)
    assert (verdict.legal, verdict.rule) == (False, "order")
    assert "take tp-cp-dp-pp" in verdict.why
