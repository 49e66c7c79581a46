"""On every kind of placement the methods agree with plain enumeration, or say why they do not apply."""

import numpy as np
import pytest

from placements import DEEPSEEK, SMALL, experts, fabric, ranks
from shardwise.plan.search.methods import BUDGET, compare, method_of, methods
from shardwise.spec.policy import Policy

NAMES = sorted(methods())
SEEDED = [name for name in NAMES if not methods()[name].exact]


@pytest.mark.parametrize("kind", SMALL)
def test_all_methods_agree_with_exhaustive(kind):
    problem = SMALL[kind]()
    best = method_of("exhaustive").solve(problem)
    assert best.proven
    assert best.evaluations == problem.points
    assert problem.bound_s <= best.objective_s * (1 + 1e-9)
    for name in set(NAMES) - {"exhaustive"}:
        if methods()[name].why_not(problem, BUDGET):
            continue
        found = methods()[name].solve(problem, budget_evaluations=3_000, seed=1)
        assert found.objective_s == pytest.approx(best.objective_s, rel=1e-6), name
        assert found.proven == (name not in SEEDED), name
        assert np.bincount(found.point, minlength=len(problem.room)).tolist() == list(problem.room)
        assert problem.price(found.point[None]).seconds[0] == pytest.approx(found.objective_s)


@pytest.mark.parametrize("seed", range(4))
def test_dynamic_and_integer_programming_prove_the_same(seed):
    problem = experts(seed=seed, tokens=50)
    exact = [method_of(name).solve(problem) for name in ("dp", "ip")]
    assert all(found.proven for found in exact)
    assert exact[0].objective_s == pytest.approx(exact[1].objective_s, rel=1e-6)


def test_a_method_that_does_not_apply_says_why():
    nodes = SMALL["dp and pp"]()
    assert "depends on where" in method_of("dp").why_not(nodes, BUDGET)
    with pytest.raises(ValueError, match="dp does not work on this problem"):
        method_of("dp").solve(nodes)
    many = experts(on="dgx-h100:64", ep=4, tokens=20, replicas=8)
    assert "16 are too many" in method_of("dp").why_not(many, BUDGET)


def test_searching_beats_the_order_of_the_ranks():
    """Eight leaves of eight nodes, 8 stages x 8 replicas: tiles of 4 replicas x 2 stages keep both rings and chains
    from the uplinks; a whole ring per leaf, which the order of the ranks gives, sends every activation through them."""
    problem = ranks(Policy(tp=8, pp=8, dp=8), fabric(512, leaf=8), batch=512)
    tiled = np.array([(stage // 2) * 2 + replica // 4 for stage in range(8) for replica in range(8)])
    order, tiles = problem.price(np.stack([problem.default, tiled])).seconds
    assert tiles < 0.85 * order
    for name in SEEDED:
        found = method_of(name).solve(problem, budget_evaluations=6_000)
        assert found.objective_s <= tiles * 1.02, name


def test_learning_is_what_makes_the_learner_good(monkeypatch):
    problem = experts(on="h800:64", ep=64, tokens=100, model=DEEPSEEK)
    learnt = [method_of("rl").solve(problem, budget_evaluations=1_200, seed=seed).objective_s for seed in range(2)]
    monkeypatch.setattr("shardwise.plan.search.methods.reinforcement.RATE", 0.0)
    even = [method_of("rl").solve(problem, budget_evaluations=1_200, seed=seed).objective_s for seed in range(2)]
    assert np.median(learnt) < np.median(even)


def test_a_comparison_falls_back_on_the_problem_s_bound():
    problem = ranks(Policy(tp=8, pp=4, dp=4), fabric(128))
    found = compare(problem, [method_of("zeroth")], budget_evaluations=100)
    assert found.optimum_s is None
    assert found.bound_s == problem.bound_s
    assert 0 <= found.gap("zeroth") < 10
