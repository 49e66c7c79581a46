"""Every kind of problem keeps the contract: points, prices, moves, bounds and forms that belong together."""

import dataclasses
import subprocess
import sys
import textwrap
from typing import get_args, get_type_hints

import numpy as np
import pytest

from search_examples import EXAMPLES, KINDS, MOST_POINTS, example, optimum, points_of
from shardwise.plan.search.methods import BUDGET, method_for, methods
from shardwise.plan.search.problems import (
    ChoicePath,
    EitherOf,
    IntegerProgram,
    StageChain,
    Subsets,
    problem_kind,
    problem_kinds,
)
from shardwise.show.cli._flags import Flags
from shardwise.show.cli._search_spaces import SpaceFlags


def told(key):
    return f"{key[0]}: {key[1]}"


every_example = pytest.mark.parametrize("key", EXAMPLES, ids=told)


def known(key, points):
    return {np.ascontiguousarray(point, dtype=np.int64).tobytes() for point in points} <= points_of(key)[1]


@pytest.mark.parametrize("name", KINDS)
def test_kind(name):
    kind = problem_kinds()[name]
    assert kind.name == name
    assert kind.summary
    assert set(kind.methods) <= set(methods())
    for problem in kind.examples().values():
        assert not method_for(problem, None, kind.methods).why_not(problem, BUDGET)


def test_flags_are_each_kind_s_own_and_reach_the_command_line():
    flags = [each.name for kind in problem_kinds().values() for each in dataclasses.fields(kind.options)]
    assert len(set(flags)) == len(flags)
    shared = set(flags) & {each.name for each in dataclasses.fields(Flags)}
    assert shared <= {"headroom"}, "options of every question, which mean the same here"
    assert {each.name for each in dataclasses.fields(SpaceFlags)} == {"problem", *flags} - shared
    for kind in problem_kinds().values():
        for meaning in get_type_hints(kind.options, include_extras=True).values():
            assert get_args(meaning)[1].endswith(".")


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'stages'"):
        problem_kind("stage")


@every_example
def test_every_point_once(key):
    problem = example(key)
    rows, different = points_of(key)
    assert len(rows) == len(different) == problem.points <= MOST_POINTS
    assert known(key, problem.default[None])
    assert problem.answer(rows).shape[0] == len(rows)


@every_example
def test_prices_are_those_of_each_point_alone(key):
    problem, rows = example(key), points_of(key)[0]
    some = rows[:: max(len(rows) // 50, 1)]
    together = problem.price(some)
    assert (together.over >= 0).all()
    for place, point in enumerate(some):
        alone = problem.price(point[None])
        assert alone.seconds[0] == pytest.approx(together.seconds[place], rel=1e-12)
        assert alone.over[0] == pytest.approx(together.over[place], rel=1e-12)
        assert alone.guide[0] == pytest.approx(together.guide[place], rel=1e-12)


@every_example
def test_the_guide_is_the_price_with_softened_maxima(key):
    priced = example(key).price(points_of(key)[0])
    assert np.isfinite(priced.seconds).all()
    assert (priced.guide <= priced.seconds * (1 + 1e-9)).all()
    assert (priced.guide >= 0.5 * priced.seconds).all()


@every_example
def test_no_point_is_below_the_bound(key):
    problem = example(key)
    priced = problem.price(points_of(key)[0])
    least = priced.seconds[priced.over == 0].min()
    assert 0 < problem.bound_s <= least
    assert least == pytest.approx(optimum(key).objective_s, rel=1e-12)


@every_example
def test_starts_and_moves_stay_inside(key):
    problem, rng = example(key), np.random.default_rng(0)
    points = problem.starts(64, rng)
    assert known(key, points)
    assert len(set(problem.moves)) == len(problem.moves)
    for move in range(len(problem.moves)):
        one, other = rng.integers(problem.positions, size=(2, 64))
        before = points.copy()
        after = problem.moved(points, np.full(64, move), one, other)
        assert known(key, after)
        assert (after != points).any(), problem.moves[move]
        assert (points == before).all(), "a move leaves the points it was given alone"


@every_example
def test_moves_lead_everywhere(key):
    """From the default every usable point can be reached: no method is shut out of a part of the space."""
    problem, rng = example(key), np.random.default_rng(1)
    rows = points_of(key)[0]
    usable = {row.tobytes() for row in rows[problem.price(rows).over == 0]}
    points = np.repeat(problem.default[None], 4_096, axis=0)
    seen: set[bytes] = set()
    for _ in range(400):
        move = rng.integers(len(problem.moves), size=len(points))
        one, other = rng.integers(problem.positions, size=(2, len(points)))
        points = problem.moved(points, move, one, other)
        seen |= {point.tobytes() for point in np.unique(points, axis=0)}
        if usable <= seen:
            return
    raise AssertionError(f"{len(usable - seen)} of {len(usable)} points were never reached")


@every_example
def test_signals(key):
    problem = example(key)
    points = problem.starts(16, np.random.default_rng(2))
    seen = problem.signals(points)
    second = seen.second(np.zeros(16, dtype=np.int64))
    for figures in (seen.first, second):
        assert figures.shape[:2] == (16, problem.positions)
        assert np.isfinite(figures).all()
    assert (seen.first.std(axis=(0, 1)) > 0).any(), "a learner sees nothing"


@every_example
def test_forms_or_reasons(key):
    problem = example(key)
    found = (problem.decomposition(), problem.program(np.inf))
    for form, kinds in zip(found, ((StageChain, ChoicePath, Subsets, EitherOf), (IntegerProgram,)), strict=True):
        if isinstance(form, str):
            assert len(form.split()) > 3
            assert "\n" not in form
        else:
            assert isinstance(form, kinds)


TOY = '''
"""Which of some items lie in the first box: the lightest, of course."""
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from shardwise.plan.search.problems._boxes import Boxes
from shardwise.plan.search.problems._contract import PointPrices, Signals
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchSpace


@dataclass(frozen=True, kw_only=True)
class ToyOptions:
    heaviest: Annotated[float, "weight of the last item."] = 5.0


class Toy(Boxes):
    room, bound_s = (2, 3), 0.0

    def __init__(self, heaviest):
        self.weights = np.linspace(1.0, heaviest, 5)

    def price(self, points):
        seconds = ((points == 0) * self.weights).sum(axis=1)
        return PointPrices(seconds, np.zeros(len(points)), seconds)

    def signals(self, points):
        seen = np.broadcast_to(self.weights - 3.0, points.shape)[:, :, None]
        return Signals(seen, lambda one: seen)

    def decomposition(self):
        return "nobody wrote how it falls apart"

    def program(self, best_s):
        return "nobody wrote a program of it"


def _space(given, options):
    toy = Toy(options.heaviest)
    return SearchSpace(problem=toy, title="toy", objective="weight", default="in order", clusters="none", notes=[],
                       facts={}, table=lambda p: PointTable(["box"], [[str(p)]], 1), best=lambda p: {"p": p.tolist()})


PROBLEM = ProblemKind(name="toy", summary="a toy", options=ToyOptions, methods=("exhaustive",), space=_space,
                      examples=lambda: {"five": Toy(5.0)})
'''


def test_one_file_is_one_problem(tmp_path):
    """A file in the folder is found, has its flags and is solved by the verb, without a line anywhere else."""
    (tmp_path / "toy.py").write_text(TOY)
    code = textwrap.dedent(f"""
        import sys, shardwise.plan.search.problems as p
        p.__path__.append({str(tmp_path)!r})
        from shardwise.show.cli import main
        sys.exit(main("search llama-3-8b --on 8xh100 --problem toy --heaviest 9 --compare --budget 100 --json".split()))
    """)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert '"p": [0, 0, 1, 1, 1]' in " ".join(found.stdout.split()).replace("[ ", "[").replace(" ]", "]")
    assert '"optimum_s": 4.0' in found.stdout
