"""The lines of a reproduced result."""

import math

from evidence.papers import Result
from shardwise.report.charts import Chart, LineMark, Panel, PlotAxis

MOST_DOTS = 20
"""points of a line that are marked each"""
MOST_PLACES = 9
"""on the horizontal axis that are labelled each"""


def papers_chart(result: Result) -> Chart:
    """Points that a logarithmic axis cannot show (zero, not finite) are left out."""
    lines = []
    for series in result.series:
        points = [(x, y) for x, y in series.points if _drawable(x, result.log_x) and _drawable(y, result.log_y)]
        if points:
            lines.append(LineMark(points, series.label, dots=len(points) <= MOST_DOTS))
    places = sorted({x for line in lines for x, _ in line.points})
    across = PlotAxis(result.x_title, log=result.log_x, text=lambda value: f"{value:,.6g}",
                      ticks=tuple(places) if len(places) <= MOST_PLACES else None)  # fmt: skip
    panel = Panel(result.y_title, lines, across, PlotAxis(log=result.log_y))
    return Chart(result.title, [panel], panel_width=540.0, panel_height=340.0, legend="right")


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)
