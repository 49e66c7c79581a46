"""Methods on drawn pipelines: exact ones against plain loops, all of them where nothing fits.

What every method keeps to on every problem is in `conformance/test_methods.py`.
"""

import builtins
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwise.plan.search.methods import compare, method_of, methods
from shardwise.plan.search.problems import StageOption, StageProblem
from shardwise.spec.policy import Policy

NAMES = sorted(methods())
EXACT = [name for name in NAMES if methods()[name].exact]
SEEDED = [name for name in NAMES if not methods()[name].exact]
LIMIT = 10.0


def random_problem(seed, stages=3, layers=5, groups=2, degrees=2, kinds=1, memory=0.2):
    """Made-up costs: every run of layers has a cost by its layers of each kind, some do not fit."""
    rng = np.random.default_rng(seed)
    sizes = (stages,) if groups == 1 else (stages // 2, stages - stages // 2)
    pattern = tuple(sorted(rng.integers(kinds, size=layers).tolist()))
    prefix = np.vstack([np.zeros(kinds), np.cumsum(np.array(pattern)[:, None] == np.arange(kinds), axis=0)])
    counts = prefix[None, :, :] - prefix[:, None, :]
    count = groups * degrees
    per_layer = rng.uniform(0.5, 2.0, (count, 1, kinds))
    held = np.einsum("abk,osk->osab", counts, per_layer) + rng.uniform(0, 0.3, (count, stages, 1, 1))
    bytes_ = np.einsum("abk,osk->osab", counts, rng.uniform(0.5, 1.5, (count, stages, kinds))) * LIMIT * memory
    above = np.tril(np.ones((layers + 1, layers + 1), dtype=bool), -1)
    held = np.where(above, np.inf, held)
    empty = np.zeros((stages, layers + 1, layers + 1), dtype=bool)
    empty[1:-1] = np.eye(layers + 1, dtype=bool)
    options = tuple(
        StageOption(group=i // degrees, cluster=f"c{i // degrees}", policy=Policy(pp=stages), limit_bytes=LIMIT,
               once_s=float(rng.uniform(0, 1)))
        for i in range(count)
    )  # fmt: skip
    even = (tuple(len(part) for part in np.array_split(np.arange(layers), stages)),
            tuple(g * degrees for g, size in enumerate(sizes) for _ in range(size)))  # fmt: skip
    return StageProblem(
        options=options, group_stages=sizes, pattern=pattern, micro_batches=float(rng.integers(stages, 20)), share=1.0,
        stretch=1.05, overhead_s=0.1, seconds=np.where((bytes_ > LIMIT) | empty, np.inf, held), any_seconds=held,
        recomputed=np.zeros_like(held), bytes=bytes_, even=even,
    )  # fmt: skip


def check_feasible(problem, found):
    held = problem.assignment(found.point)
    assert sum(held.layers) == problem.layers
    assert all(n >= least for n, least in zip(held.layers, problem.fewest, strict=True))
    taken = problem.option_group[list(held.options)]
    assert np.bincount(taken, minlength=len(problem.group_stages)).tolist() == list(problem.group_stages)
    priced = problem.price(found.point[None])
    assert priced.over[0] == 0
    assert priced.seconds[0] == pytest.approx(found.objective_s)
    assert max(held.peak_bytes) <= LIMIT * (1 + 1e-9)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'zeroth'"):
        method_of("zerot")


def by_hand(problem):
    """The best by plain loops: no line in common with the methods."""
    best = np.inf
    for layers in np.ndindex(*(problem.layers + 1,) * problem.stages):
        if sum(layers) != problem.layers:
            continue
        for options in np.ndindex(*(len(problem.options),) * problem.stages):
            groups = [problem.options[o].group for o in options]
            if [groups.count(g) for g in range(len(problem.group_stages))] != list(problem.group_stages):
                continue
            start, held = 0, []
            for stage, (n, option) in enumerate(zip(layers, options, strict=True)):
                held.append(problem.seconds[option, stage, start, start + n])
                start += n
            once = max(problem.options[o].once_s for o in options)
            busy = (problem.micro_batches - 1.0) * max(held) + sum(held) + once
            best = min(best, 1.05 * busy + 0.1)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_exhaustive_is_what_plain_loops_find(seed):
    problem = random_problem(seed)
    found = method_of("exhaustive").solve(problem)
    assert found.proven
    assert found.evaluations == problem.points
    assert found.objective_s == pytest.approx(by_hand(problem))


@pytest.mark.parametrize("name", [n for n in EXACT if n != "exhaustive"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000), stages=st.integers(2, 4), layers=st.integers(2, 7), groups=st.integers(1, 2),
    kinds=st.integers(1, 3), memory=st.floats(0.1, 0.6),
)  # fmt: skip
def test_exact_methods_agree_with_exhaustive(name, seed, stages, layers, groups, kinds, memory):
    problem = random_problem(seed, stages, layers, groups, kinds=kinds, memory=memory)
    best = method_of("exhaustive").solve(problem, budget_evaluations=10**6)
    found = method_of(name).solve(problem)
    assert found.proven
    assert found.objective_s == pytest.approx(best.objective_s)
    if best.point is not None:
        check_feasible(problem, found)


@pytest.mark.parametrize("seed", range(12))
def test_of_equals_the_one_whose_stages_are_most_alike(seed):
    """Whole seconds, so that many splits tie; enumeration says which of them has the least squares."""
    problem = random_problem(seed, stages=4, layers=8, groups=1 + seed % 2, degrees=1, memory=0.05)
    seconds, any_seconds = (np.ceil(table * 2) for table in (problem.seconds, problem.any_seconds))
    problem = replace(problem, seconds=seconds, any_seconds=any_seconds,
                      options=tuple(replace(option, once_s=0.5) for option in problem.options))  # fmt: skip
    points = np.concatenate(list(problem.every()))
    priced = problem.price(points)
    usable = np.where(priced.over > 0, np.inf, priced.seconds)
    best = points[usable <= usable.min() * (1 + 1e-12)]
    squares = [sum(s**2 for s in problem.assignment(point).stage_s) for point in best]
    found = method_of("dp").solve(problem)
    assert found.objective_s == pytest.approx(usable.min(), rel=1e-9)
    assert sum(s**2 for s in problem.assignment(found.point).stage_s) == pytest.approx(min(squares))


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("seed", range(6))
def test_seeded_methods_agree_on_tiny_spaces(name, seed):
    problem = random_problem(seed, stages=3, layers=4)
    found = method_of(name).solve(problem, budget_evaluations=6_000, seed=seed)
    check_feasible(problem, found)
    assert found.objective_s == pytest.approx(method_of("exhaustive").solve(problem).objective_s)
    assert not found.proven


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_feasible_and_never_better_than_the_best(name, seed):
    problem = random_problem(seed, stages=6, layers=20, degrees=1, memory=0.12)
    optimum = method_of("dp").solve(problem)
    assert optimum.proven
    found = method_of(name).solve(problem, budget_evaluations=2_000)
    if found.point is not None:
        check_feasible(problem, found)
        assert found.objective_s >= optimum.objective_s * (1 - 1e-9)
    if found.bound_s is not None:
        assert found.bound_s <= optimum.objective_s * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_fits(name):
    problem = random_problem(8)
    full = replace(problem, seconds=np.full_like(problem.seconds, np.inf), bytes=problem.bytes + 2 * LIMIT)
    found = method_of(name).solve(full, budget_evaluations=3_000)
    assert found.point is None
    assert found.objective_s == np.inf
    assert found.proven == (name in EXACT)


def test_integer_programming_says_when_scipy_is_missing(monkeypatch):
    original = builtins.__import__

    def without(name, *rest):
        if name.startswith("scipy"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"shardwise\[fit\]"):
        method_of("ip").solve(random_problem(0))


def test_a_comparison_knows_the_optimum():
    problem = random_problem(9)
    found = compare(problem, list(methods().values()), budget_evaluations=3_000)
    assert found.optimum_s == pytest.approx(found.solutions["exhaustive"].objective_s)
    assert all(found.gap(name) >= 0 for name in NAMES)
    assert found.gap("dp") == pytest.approx(0, abs=1e-9)
    seeded = compare(problem, [method_of("zeroth")], budget_evaluations=100)
    assert seeded.optimum_s is None
    assert seeded.bound_s == problem.bound_s <= found.optimum_s
    assert seeded.gap("zeroth") >= found.gap("zeroth")
