"""Every search method on every small problem: legal points, true bounds, repeatable, inside its budget, or a reason."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from search_examples import EXAMPLES, MOST_POINTS, example, optimum, points_of
from shardwise.plan.search.methods import BUDGET, methods

NAMES = sorted(methods())
BOTH = [(name, key) for name in NAMES for key in EXAMPLES]
WORKING = [(name, key) for name, key in BOTH if not methods()[name].why_not(example(key), MOST_POINTS)]
ENOUGH = 4_000


class Watched:
    """A problem that remembers every point it was asked the price of."""

    def __init__(self, problem):
        self.problem, self.priced = problem, []

    def price(self, points):
        self.priced += [np.ascontiguousarray(point, dtype=np.int64).tobytes() for point in points]
        return self.problem.price(points)

    def __getattr__(self, name):
        return getattr(self.problem, name)


def told(key):
    return f"{key[0]}: {key[1]}" if isinstance(key, tuple) else key


def solve(name, problem, budget=ENOUGH, **more):
    return methods()[name].solve(problem, budget_evaluations=budget, **more)


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    method = methods()[name]
    assert method.name == name
    assert method.title
    assert method.summary
    assert any((name, key) in WORKING for key in EXAMPLES), "a method that works on nothing"


@pytest.mark.parametrize(("name", "key"), BOTH, ids=told)
def test_a_method_works_or_says_why_not(name, key):
    why = methods()[name].why_not(example(key), MOST_POINTS)
    if not why:
        return
    assert len(why.split()) > 3, "a sentence"
    assert "\n" not in why
    assert not why.endswith(".")
    with pytest.raises(ValueError, match=name) as refusal:
        solve(name, example(key))
    assert why in str(refusal.value)


@pytest.mark.parametrize(("name", "key"), WORKING, ids=told)
def test_points_are_legal_and_never_better_than_the_best(name, key):
    problem, best = Watched(example(key)), optimum(key)
    found = solve(name, problem, budget=MOST_POINTS if methods()[name].exact else ENOUGH)
    assert set(problem.priced) <= points_of(key)[1]
    assert found.point is not None
    priced = problem.price(found.point[None])
    assert priced.over[0] == 0
    assert priced.seconds[0] == pytest.approx(found.objective_s, rel=1e-12)
    assert found.objective_s >= best.objective_s * (1 - 1e-7)
    assert found.objective_s >= example(key).bound_s
    if found.bound_s is not None:
        assert found.bound_s <= best.objective_s * (1 + 1e-7)
    objectives = [objective for _, _, objective in found.trace]
    assert objectives == sorted(objectives, reverse=True)
    assert found.proven == methods()[name].exact
    assert found.objective_s <= best.objective_s * (1 + (1e-7 if found.proven else 0.02))


@pytest.mark.parametrize(("name", "key"), WORKING, ids=told)
def test_same_seed_same_answer(name, key):
    first, second = (solve(name, example(key), budget=400, seed=3) for _ in range(2))
    assert [(e, o) for e, _, o in first.trace] == [(e, o) for e, _, o in second.trace]
    assert np.array_equal(first.point, second.point) if first.point is not None else second.point is None


@pytest.mark.parametrize("budget", [1, 2, 37])
@pytest.mark.parametrize(("name", "key"), WORKING, ids=told)
def test_the_budget_is_kept(name, key, budget):
    problem = Watched(example(key))
    found = solve(name, problem, budget=budget)
    assert len(problem.priced) <= found.evaluations <= budget
    if not methods()[name].exact:
        assert found.evaluations == budget
    if found.proven:
        assert found.objective_s <= optimum(key).objective_s * (1 + 1e-7)


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize(("name", "key"), WORKING, ids=told)
def test_an_interruption_hands_back_the_best_so_far(name, key, calls):
    best = []

    def interrupt(_evaluations, so_far):
        best.append(so_far)
        if len(best) == calls:
            raise KeyboardInterrupt

    try:
        found = solve(name, example(key), budget=MOST_POINTS, progress=interrupt)
    except KeyboardInterrupt:
        assert np.isinf(best[-1])  # there was nothing to hand back
        return
    if len(best) < calls:
        assert found.proven  # it was done before
        return
    assert found.objective_s == best[-1]
    assert found.point is not None
    assert not found.proven


@pytest.mark.parametrize(("name", "key"), WORKING, ids=told)
def test_the_next_best_are_other_answers(name, key):
    """Or the method says that it finds the best alone."""
    problem, truth = example(key), optimum(key, 3)
    budget = MOST_POINTS if methods()[name].exact else ENOUGH
    try:
        found = solve(name, problem, budget=budget, count=3)
    except ValueError as error:
        told_so = str(error)
    else:
        told_so = ""
    if told_so:
        assert "not the next best" in told_so
        assert methods()[name].exact
        return
    seconds = [problem.price(point[None]).seconds[0] for point in found.ranked]
    assert seconds == sorted(seconds)
    assert np.array_equal(found.ranked[0], found.point)
    assert len({problem.answer(point[None])[0].tobytes() for point in found.ranked}) == len(found.ranked) == 3
    true = [problem.price(point[None]).seconds[0] for point in truth.ranked]
    assert all(mine >= best * (1 - 1e-7) for mine, best in zip(seconds, true, strict=True))
    if found.proven:
        assert seconds == pytest.approx(true, rel=1e-7)


@pytest.mark.parametrize(("field", "value"), [("budget_evaluations", 0), ("seed", -1), ("count", 0)])
@pytest.mark.parametrize("name", NAMES)
def test_bad_arguments(name, field, value):
    key = next(key for each, key in WORKING if each == name)
    with pytest.raises(ValueError, match=field.split("_")[0]):
        methods()[name].solve(example(key), **{field: value})


def test_one_file_is_one_method(tmp_path):
    """A file in the folder is found, listed and run by the verb, without a line anywhere else."""
    (tmp_path / "first_come.py").write_text(textwrap.dedent('''
        """Whatever one has without a search."""
        from shardwise.plan.search.methods._contract import Method

        def _look(meter, _seed):
            meter.price(meter.problem.default[None])

        METHOD = Method(name="first", title="first come", summary="the default", exact=False, look=_look)
    '''))  # fmt: skip
    code = (f"import sys, shardwise.plan.search.methods as m; m.__path__.append({str(tmp_path)!r})\n"
            "from shardwise.show.cli import main\n"
            "sys.exit(main('search llama-3-8b --on 8xh100 --pp 8 --seq 8192 --global-batch 64 --compare "
            f"--budget {BUDGET // 40}'.split()))")  # fmt: skip
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "\nfirst " in found.stdout
