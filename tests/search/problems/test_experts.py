"""Expert placement: known answers by hand, the estimate's own seconds, and a sample that is what it says."""

import dataclasses

import numpy as np
import pytest

from placements import CORE, LLAMA, MIXTRAL, experts
from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import RandomRouting, expert_problem, sample_of
from shardwise.plan.search.problems.experts._build import copied
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of, driven_network


def test_loads_and_visits_by_hand():
    tokens = np.array([[0, 1], [0, 2], [0, 3], [4, 5]])
    problem = experts(sample=tokens)  # 8 experts, 2 a rank, 2 ranks a node
    point = problem.default[None]
    by_rank, by_node = problem.reached(point)
    assert problem.rank_loads(point).tolist() == [[4, 2, 2, 0]]
    assert by_rank.tolist() == [[3, 2, 1, 0]]
    assert by_node.tolist() == [[3, 1]]


@pytest.mark.parametrize("imbalance", [1.0, 1.7])
def test_products_are_the_estimate_s(imbalance):
    """The part of an estimate that grows with the imbalance is what the fullest rank's products add."""
    problem, cluster = experts(), cluster_of("4x2xh100")
    policy, job = Policies.of([Policy(dp=8, ep=4)]), Job(seq=4096, global_batch=64)
    stacks = [CORE.changed(expert_imbalance=i) for i in (imbalance, 1.0)]
    unit = [estimate(case_of(MIXTRAL, cluster, job, stack), policy).times.units[0] for stack in stacks]
    told = [float(u.parts["forward"][0] + u.parts["backward"][0]) for u in unit]
    own = problem.products_s(np.array([imbalance, 1.0]))
    assert own[0] - own[1] == pytest.approx(told[0] - told[1], rel=1e-9, abs=1e-15)


def test_an_even_exchange_costs_what_the_network_says():
    """With one expert a token, spread evenly, nothing is saved: it is the all-to-all of the network."""
    cluster = cluster_of("4x2xh100")
    problem = experts(sample=np.array([[e, (e + 1) % 8] for e in range(8)]))
    single = dataclasses.replace(problem, tokens=np.arange(8)[:, None])
    by_rank, by_node = single.reached(single.default[None])
    found = single.exchange_s([v.max(axis=1) for v in single.volumes(by_rank, by_node)])[0] / 4
    told = driven_network(cluster, CORE).seconds("all_to_all", single.token_bytes * 8 / 4, 4, 1)
    copy = driven_network(cluster, CORE).links.link["nvlink4"].copy_bytes_per_s
    assert found == pytest.approx(float(told) - single.token_bytes * 2 / 4 / copy, rel=1e-6)


def test_experts_that_fire_together_end_up_on_one_node():
    pairs = np.array([[0, 4], [1, 5], [2, 6], [3, 7]] * 5)
    problem = experts(sample=pairs)
    found = method_of("dp").solve(problem)
    _, by_node = problem.reached(found.point[None])
    assert by_node.sum() == len(pairs)  # every token visits one node
    assert problem.reached(problem.default[None])[1].sum() == 2 * len(pairs)
    assert found.objective_s < problem.price(problem.default[None]).seconds[0]


def test_hot_experts_are_kept_apart_and_replicas_share():
    tokens = np.array([[0, 1]] * 20 + [[2, 3], [4, 5], [6, 7]])
    problem = experts(sample=tokens)
    point = method_of("exhaustive").solve(problem).point
    assert point[0] != point[1]
    more = copied(tokens, 8, 2)
    loads = np.bincount(more.ravel(), minlength=10)
    assert loads[[0, 1, 8, 9]].tolist() == [10, 10, 10, 10]
    assert loads.sum() == tokens.size


@pytest.mark.parametrize("seed", range(5))
def test_no_placement_is_below_the_bound(seed):
    problem = experts(seed=seed, tokens=100)
    points = problem.starts(300, np.random.default_rng(seed))
    fullest, busiest_rank, busiest_node = problem.least
    by_rank, by_node = problem.reached(points)
    assert (problem.rank_loads(points).max(axis=1) >= fullest - 1e-9).all()
    assert (by_rank.max(axis=1) >= busiest_rank - 1e-9).all()
    assert (by_node.max(axis=1) >= busiest_node - 1e-9).all()
    assert (problem.price(points).seconds >= problem.bound_s * (1 - 1e-12)).all()


def test_a_drawn_sample_is_repeatable_and_skewed():
    flat, steep = (experts(sample=RandomRouting(skew=skew, tokens=2_000)).loads for skew in (0.0, 2.0))
    assert steep.max() / steep.mean() > flat.max() / flat.mean()
    assert (experts(seed=4).tokens == experts(seed=4).tokens).all()
    assert (experts(seed=4).tokens != experts(seed=5).tokens).any()
    assert all(len(set(row)) == len(row) for row in experts().tokens.tolist())


def test_a_measured_sample(tmp_path):
    path = tmp_path / "routing.csv"
    path.write_text("0,1\n2 3\n\n6, 7\n")
    assert sample_of(path).tolist() == [[0, 1], [2, 3], [6, 7]]
    assert experts(sample=sample_of(path)).loads.tolist() == [1, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("text", ["", "0,1\n2\n", "0,x\n", "-1,2\n", "0,1e3\n"])
def test_a_bad_sample_is_refused(tmp_path, text):
    path = tmp_path / "routing.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="routing"):
        sample_of(path)


@pytest.mark.parametrize(
    ("model", "more", "words"),
    [
        (LLAMA, {}, "no experts"),
        (MIXTRAL, {"replicas": 1}, "replicas"),
        (MIXTRAL, {"ep": 1}, "ep"),
        (MIXTRAL, {"sample": np.array([[0, 8]])}, "routing"),
        (MIXTRAL, {"sample": np.array([[1, 1]])}, "routing"),
        (MIXTRAL, {"sample": RandomRouting(skew=-1.0)}, "skew"),
        (MIXTRAL, {"sample": RandomRouting(tokens=0)}, "sample"),
    ],
)
def test_what_cannot_be_is_refused(model, more, words):
    policy, job = Policy(dp=8, ep=more.pop("ep", 4)), Job(seq=4096, global_batch=64)
    with pytest.raises(ValueError, match=words):
        expert_problem(case_of(model, cluster_of("4x2xh100"), job, CORE), policy, **more)
