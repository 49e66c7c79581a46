"""`shardwise search`: the best point of any problem, by any of several methods."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.plan.search.methods import (
    BUDGET,
    Comparison,
    Method,
    Solution,
    compare,
    method_for,
    methods,
    points_text,
    unusable,
)
from shardwise.plan.search.problems import Problem, ProblemKind, SearchSpace
from shardwise.question import PolicyQuestion
from shardwise.report.charts import Chart, chart_svg
from shardwise.report.search_figure import SearchCourse, search_chart
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags
from shardwise.show.cli._html import draw
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._progress import LogLines
from shardwise.show.cli._search_spaces import SpaceFlags, space_of
from shardwise.units import time_text

PLAIN_SPACE = SpaceFlags()
_METHODS = ", ".join(f"{method.name} ({method.title})" for method in methods().values())


def solve(
    model: ModelName,
    /,
    flags: Flags,
    space: SpaceFlags = PLAIN_SPACE,
    *,
    method: Annotated[str | None, Parameter(help=f"{_METHODS}; default: the first that works here.")] = None,
    compare_all: Annotated[bool, Parameter(name="--compare", negative=(), help="All methods side by side.")] = False,
    seed: Annotated[int, Parameter(help="Seed of the methods that draw at random.")] = 0,
    budget: Annotated[int, Parameter(help="Points a method may try.")] = BUDGET,
    figure: Annotated[Path | None, Parameter(help="Quality against evaluations and time, as an .svg file.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """The best stages, rank placement, expert placement or cuts; --compare: quality against time and evaluations."""
    if figure is not None and figure.suffix != ".svg":
        raise ValueError(f"figure: {str(figure)!r} is no .svg file; write a name that ends in .svg")
    picture = figure_file(figure, overwrite)
    ask, kind, asked = space_of(model, flags, space)
    problem = asked.problem
    notes = [f"{points_text(problem.points)} points", *ask.notes, *asked.notes]
    if compare_all:
        left_out = unusable(problem, budget)
        chosen = [m for m in methods().values() if m.name not in left_out]
        notes += [f"{name} is left out: {why}" for name, why in left_out.items()]
    else:
        chosen = [method_for(problem, method, kind.methods, budget)]
    with _bar(budget, len(chosen)) as progress:
        found = compare(problem, chosen, budget_evaluations=budget, seed=seed, progress=progress)
    if len(found.solutions) < len(chosen) or not all(s.finished for s in found.solutions.values()):
        notes.append(f"interrupted: best so far, by {len(found.solutions)} of {len(chosen)} methods")
    best = min(found.solutions.values(), key=lambda solution: solution.objective_s)
    if picture is not None:
        picture.write(chart_svg(_chart(found, asked.title)).encode())
        notes.append(f"figure: {figure}")
    if json:
        print_json(_data(ask, kind, asked, found, best) | {"policy_origin": ask.origin, "notes": notes})
    else:
        draw(lambda: chart_svg(_chart(found, asked.title)))
        _show(asked, chosen, found, best, notes)
    return 0 if best.point is not None else DOES_NOT_FIT


def _chart(found: Comparison, title: str) -> Chart:
    courses = [
        SearchCourse(name, s.objective_s, s.evaluations, s.seconds, s.proven, s.trace)
        for name, s in found.solutions.items()
    ]
    return search_chart(courses, title, base_s=found.bound_s, proven=found.optimum_s is not None)


@contextmanager
def _bar(budget: int, count: int) -> Iterator[Callable[[int, float], None]]:
    """A progress bar on stderr where someone watches it, lines elsewhere."""
    if not sys.stderr.isatty():
        lines = LogLines()
        yield lambda done, _best: lines.count("points", done, budget)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("points" if count == 1 else "points, one method after another", total=budget)
        yield lambda done, _best: bar.update(task, completed=done)


def _show(space: SearchSpace, chosen: list[Method], found: Comparison, best: Solution, notes: list[str]) -> None:
    known = "no method proved one" if found.optimum_s is None else f"{time_text(found.optimum_s)}, proven"
    if found.optimum_s is None and found.bound_s is not None:
        known = f"not proven; nothing is below {time_text(found.bound_s)}"
    default, fits = _default(space.problem)
    told = time_text(default) + ("" if fits else ", does not fit")
    print_facts(space.title, [(space.default, told), ("optimum", known)])
    print_gap()
    rows = [
        (m.name, time_text(s.objective_s) if s.point is not None else "none fits", _percent(found.gap(m.name)),
         s.evaluations, f"{s.seconds:.3g}", "yes" if s.proven else "no")
        for m in chosen if m.name in found.solutions for s in [found.solutions[m.name]]
    ]  # fmt: skip
    against = "above optimum" if found.optimum_s is not None else "above bound"
    print_table("methods", ["method", space.objective, against, "evaluations", "seconds", "proven"], rows)
    if best.point is not None:
        print_gap()
        table = space.table(best.point)
        print_table("the best found", table.heads, table.rows, words=table.words)
    print_notes(notes)


def _percent(gap: float | None) -> str | None:
    return None if gap is None else f"{gap:.2%}"


def _default(problem: Problem) -> tuple[float, bool]:
    priced = problem.price(problem.default[None])
    return float(priced.seconds[0]), bool(priced.over[0] == 0)


def _data(
    ask: PolicyQuestion, kind: ProblemKind, space: SearchSpace, found: Comparison, best: Solution
) -> dict[str, Any]:
    problem = space.problem
    default, fits = _default(problem)
    return {
        "model": ask.model.name, "clusters": space.clusters, "problem": kind.name, "objective": space.objective,
        "fits": best.point is not None, **space.facts,
        "points": problem.points if problem.points < 2**63 else float(min(problem.points, 10**300)),
        "default": {"objective_s": default, "fits": fits},
        "optimum_s": found.optimum_s, "bound_s": found.bound_s,
        "methods": {
            name: {
                "objective": s.objective_s if s.point is not None else None,
                "objective_s": s.objective_s if s.point is not None else None, "gap": found.gap(name), "own_gap": s.gap,
                "bound_s": s.bound_s, "evaluations": s.evaluations, "seconds": s.seconds, "proven": s.proven,
                "trace": [(evaluations, objective_s) for evaluations, _, objective_s in s.trace],
                "trace_s": [seconds for _, seconds, _ in s.trace],
            } for name, s in found.solutions.items()
        },
        "best": None if best.point is None else {space.price_key: best.objective_s, **space.best(best.point)},
    }  # fmt: skip
