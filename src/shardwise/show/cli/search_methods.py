"""`shardwise search`: the best point of any problem, by any of several methods."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers.search import search_answer
from shardwise.plan.search.methods import BUDGET, compare, method_for, methods, points_text, unusable
from shardwise.report.charts import chart_svg
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import Flags
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import LogLines
from shardwise.show.cli._search_spaces import SpaceFlags, space_of

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
    answer = search_answer(ask, kind, asked, found, notes)
    if picture is not None:
        picture.write(chart_svg(answer.chart).encode())
        answer = with_fields(answer, notes=[*notes, f"figure: {figure}"])
    return answered(answer, json)


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
