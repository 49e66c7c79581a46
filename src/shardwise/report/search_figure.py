"""Quality against evaluations and against time, one stepped line per method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardwise.report.charts import Chart, DotsMark, LineMark, Panel, PlotAxis
from shardwise.report.charts.ink import colour_of
from shardwise.units import time_text

LEAST_GAP = 1e-4
"""gaps below this are drawn on the lowest line: the optimum itself"""
LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class SearchCourse:
    """How one method came to its best point."""

    method: str
    objective_s: float
    evaluations: int
    seconds: float
    proven: bool
    improvements: Sequence[tuple[int, float, float]]
    """(evaluations, seconds, objective) at each"""


def search_chart(
    courses: Sequence[SearchCourse], title: str, *, base_s: float | None, proven: bool,
    text: Callable[[float], str] = time_text,
) -> Chart:  # fmt: skip
    """`base_s`: the lowest line: the optimum, or where none is proven the bound; None: the best that was found.
    `text`: of an objective."""
    drawn = [course for course in courses if course.improvements]
    base = base_s or min((course.objective_s for course in drawn), default=1.0)
    gaps = PlotAxis(log=True, low=LEAST_GAP, text=lambda gap: _gap_text(gap, proven=proven))
    sides = (
        PlotAxis("points priced", log=True, low=1.0, text=lambda count: f"{count:,.0f}"),
        PlotAxis("seconds", log=True, low=LEAST_SECONDS, text=lambda seconds: f"{seconds:g}"),
    )
    panels = [
        Panel("step above the lowest line" if side == 0 else "", _lines(drawn, side, base, text), axis, gaps)
        for side, axis in enumerate(sides)
    ]
    return Chart(title, panels, columns=2, panel_width=380.0, panel_height=300.0, legend="right",
                 empty="no method found a point that may be used")  # fmt: skip


def _lines(
    courses: Sequence[SearchCourse], side: int, base: float, text: Callable[[float], str]
) -> list[LineMark | DotsMark]:
    lines, ends = [], []
    for number, course in enumerate(courses):
        least = (1.0, LEAST_SECONDS)[side]
        points = [(max(entry[side], least), max(entry[2] / base - 1.0, LEAST_GAP)) for entry in course.improvements]
        end = max((course.evaluations, course.seconds)[side], points[-1][0])
        proof = "proven, " if course.proven else ""
        lines.append(LineMark([*points, (end, points[-1][1])], f"{course.method}: {text(course.objective_s)}",
                              f"{proof}{course.seconds:.2g} s of search", colour_of(number), stairs=True))  # fmt: skip
        # a dot where the best was found
        ends.append(DotsMark([points[-1]], colour=colour_of(number), size=9.0, opacity=1.0))
    return [*lines, *ends]


def _gap_text(gap: float, *, proven: bool) -> str:
    if gap > LEAST_GAP * 1.01:
        return f"{100 * gap:g} %"
    return "optimum" if proven else "bound"
