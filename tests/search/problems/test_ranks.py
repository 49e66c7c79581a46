"""A regular placement costs what the network says; an irregular one what its links carry."""

import numpy as np
import pytest

from placements import CORE, DEEPSEEK, LLAMA, fabric, ranks
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.work.case import driven_network


def call(problem, name):
    item = next(item for item in problem.traffic if item.name == name)
    return item, float(problem.call_s(item, problem.default[None])[0][0])


@pytest.mark.parametrize("oversubscription", [1.0, 4.0])
@pytest.mark.parametrize("op", ["reduce_scatter", "all_gather"])
def test_a_regular_ring_costs_what_the_network_says(op, oversubscription):
    cluster = fabric(512, leaf=4, oversubscription=oversubscription)
    item, seconds = call(ranks(Policy(tp=8, dp=64), cluster), f"dp_cp {op}")
    told = driven_network(cluster, CORE).seconds(op, item.bytes, 64, 8, algorithm="ring")
    assert seconds == pytest.approx(float(told), rel=1e-9)


@pytest.mark.parametrize("ep", [16, 64])
def test_a_regular_all_to_all_costs_what_the_network_says(ep):
    cluster = fabric(512, leaf=4)
    problem = ranks(Policy(dp=512, ep=ep), cluster, model=DEEPSEEK, batch=512)
    item, seconds = call(problem, "ep all_to_all")
    assert seconds == pytest.approx(
        float(driven_network(cluster, CORE).seconds("all_to_all", item.bytes, ep, 1)), rel=1e-9
    )


def test_a_pipeline_whose_every_hop_leaves_its_leaf_costs_what_the_network_says():
    cluster = fabric(256, leaf=4)
    problem = ranks(Policy(tp=8, pp=8, dp=4), cluster)
    item, seconds = call(problem, "pp send")
    told = driven_network(cluster, CORE).seconds("send", item.bytes, 2, 32)
    assert seconds == pytest.approx(float(told), rel=1e-9)


def test_what_leaves_each_leaf_by_hand():
    problem = ranks(Policy(tp=8, pp=2, dp=4), fabric(64))
    item = next(item for item in problem.traffic if item.name == "dp_cp all_gather")
    split = np.array([[0, 0, 1, 1, 0, 0, 1, 1]])  # both rings half here, half there: each leaf sends 2 of 8 edges
    slowest = problem._volumes(item, split)[1].max()
    assert item.groups.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert slowest == pytest.approx(2 * item.weight / (4 * 8))


def test_swapping_nodes_under_one_leaf_changes_nothing_and_slow_ones_cost():
    fast, slow = (ranks(Policy(tp=8, pp=2, dp=4), fabric(64), slow=nodes) for nodes in ([], [0]))
    assert slow.room == (3, 1, 4)
    assert slow.price(slow.default[None]).seconds[0] > fast.price(fast.default[None]).seconds[0]
    spare = ranks(Policy(tp=8, pp=2, dp=4), fabric(256), free=range(12), slow=[0])
    point = np.array([2] * 4 + [3] * 4 + [0, 0, 0, 1])
    assert spare.positions == 12
    assert spare.price(point[None]).seconds[0] < spare.price(spare.default[None]).seconds[0]


def test_softened_maxima_are_below_the_true_ones():
    problem = ranks(Policy(tp=8, pp=4, dp=4), fabric(128))
    priced = problem.price(problem.starts(50, np.random.default_rng(0)))
    assert (priced.guide <= priced.seconds * (1 + 1e-9)).all()
    assert (priced.guide >= 0.5 * priced.seconds).all()
    assert (priced.seconds >= problem.bound_s).all()


@pytest.mark.parametrize("move", range(5))
def test_every_move_keeps_the_boxes_full(move):
    problem, rng = ranks(Policy(tp=8, pp=4, dp=4), fabric(128)), np.random.default_rng(0)
    points = problem.starts(40, rng)
    one, other = rng.integers(problem.positions, size=(2, 40))
    after = problem.moved(points, np.full(40, move), one, other)
    assert (np.sort(after, axis=1) == np.sort(points, axis=1)).all()
    assert (after != points).any()
    assert len(problem.moves) == 5


@pytest.mark.parametrize(
    ("policy", "cluster", "more", "words"),
    [
        (Policy(tp=8, dp=4), cluster_of("4x8xh100"), {}, "under one switch"),
        (Policy(tp=8, pp=2, dp=4, zero=3), fabric(64), {}, "zero"),
        (Policy(tp=8, pp=2, dp=4), fabric(64), {"free": [0, 1]}, "at least that many"),
        (Policy(tp=8, pp=2, dp=4), fabric(64), {"free": [0, 0, 1, 2, 3, 4, 5, 6, 7]}, "different"),
        (Policy(tp=8, pp=2, dp=4), fabric(64), {"slow_speed": 0.0}, "slow-speed"),
        (Policy(tp=8), fabric(64), {}, "leaves a node"),
        (Policy(tp=4, dp=3), fabric(64), {}, "not whole nodes"),
    ],
)
def test_what_cannot_be_is_refused(policy, cluster, more, words):
    with pytest.raises(ValueError, match=words):
        ranks(policy, cluster, model=LLAMA, batch=96, **more)


def test_the_sum_is_the_collectives_of_a_step():
    problem = ranks(Policy(tp=8, pp=2, dp=4), fabric(64))
    assert sum(problem.parts_s(problem.default).values()) == pytest.approx(
        float(problem.price(problem.default[None]).seconds[0])
    )
    assert 2 * Job(seq=4096, global_batch=64).global_batch // 4 == next(
        t.count for t in problem.traffic if "pp" in t.name
    )
