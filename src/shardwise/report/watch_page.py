"""A watched run as one HTML file: steps beside their prediction, where each rank's time went, memory, counters."""

from collections.abc import Sequence
from html import escape

import numpy as np

from shardwise.arrays import Floats
from shardwise.measured.diagnose.causes import CURES, Cause
from shardwise.measured.diagnose.counters import CounterSeries
from shardwise.measured.diagnose.health.status import RunStatus
from shardwise.measured.diagnose.records import StepGrid
from shardwise.report.charts import BandMark, Chart, LineMark, Mark, Panel, PlotAxis, RuleMark, chart_svg
from shardwise.report.charts.ink import ALARM, PALETTE
from shardwise.report.timeline_page import MARK, STYLE

MOST_POINTS = 600
MOST_RANKS = 12
MOST_COUNTERS = 12
PARTS = {"own work": "own_s", "in messages": "comm_s", "waiting for data": "data_s", "saving": "save_s"}


def watch_page(
    name: str, status: RunStatus, facts: Sequence[tuple[str, str]], grid: StepGrid | None, causes: Sequence[Cause],
    counters: Sequence[CounterSeries], times: Sequence[float],
) -> str:  # fmt: skip
    """`times`: when each step of the grid ended, to lay counters over the steps."""
    rows = "".join(f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in facts)
    told = "".join(
        f"<li><b>{escape(cause.what)}</b> {escape(cause.where)}: {escape(cause.evidence)}. "
        f"{escape(CURES[cause.code])}</li>" for cause in causes
    ) or "<li>nothing was found</li>"  # fmt: skip
    panels = [] if grid is None else _panels(status, grid, causes, counters, times)
    # a chart each: lines of one panel mean other things than those of the next, and a chart has one legend
    figures = "\n".join(chart_svg(Chart(panel.title, [panel], heading=False, legend="right")) for panel in panels)
    title = escape(f"{name}: a training run")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"/>{MARK}<title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n<h2>{title}</h2>\n<table>\n{rows}\n</table>\n"
        f"<h2>What is wrong, and what to do</h2>\n<ul>\n{told}\n</ul>\n{figures}\n</body>\n</html>\n"
    )


def _panels(
    status: RunStatus, grid: StepGrid, causes: Sequence[Cause], counters: Sequence[CounterSeries],
    times: Sequence[float],
) -> list[Panel]:  # fmt: skip
    across = PlotAxis("step")
    steps = grid.step.tolist()
    since = [RuleMark(cause.what, x=float(cause.since), colour=ALARM) for cause in causes if cause.since is not None]
    band: list[Mark] = []
    if status.predicted_low_s and status.predicted_high_s:
        ends = (status.predicted_low_s * 1e3, status.predicted_high_s * 1e3)
        band = [BandMark([(float(steps[0]), *ends), (float(steps[-1]), *ends)], PALETTE[2])]
    whole = LineMark(_points(steps, grid.step_s.max(axis=0) * 1e3), "step")
    panels = [Panel("step, ms", [*band, whole, *since], across)]
    lines = [LineMark(_points(steps, np.nan_to_num(getattr(grid, field)).mean(axis=0) * 1e3), part)
             for part, field in PARTS.items()]  # fmt: skip
    panels.append(Panel("where the mean rank's time goes, ms", lines, across))
    by_rank = [LineMark(_points(steps, grid.own_s[row] * 1e3), f"rank {rank}")
               for row, rank in enumerate(grid.ranks[:MOST_RANKS])]  # fmt: skip
    panels.append(Panel("own work before the others are met, ms", by_rank, across))
    known = [row for row in range(len(grid.ranks))[:MOST_RANKS] if not np.isnan(grid.held_bytes[row]).any()]
    held = [LineMark(_points(steps, grid.held_bytes[row] / 2**20), f"rank {grid.ranks[row]}") for row in known]
    panels += [Panel("memory, MiB", held, across)] if held else []
    return panels + _counter_panels(counters, steps, times, across)


def _counter_panels(
    counters: Sequence[CounterSeries], steps: Sequence[int], times: Sequence[float], across: PlotAxis
) -> list[Panel]:
    """Those that moved while the run went on, at the step under way."""
    by_name: dict[str, list[LineMark]] = {}
    for each in counters:
        inside = [
            (at, value) for at, value in each.readings if at is not None and times and times[0] <= at <= times[-1]
        ]
        if len(inside) < 2 or len({value for _, value in inside}) < 2:
            continue
        places = np.interp([at for at, _ in inside], times, [float(step) for step in steps])
        by_name.setdefault(each.name, []).append(
            LineMark(_points(places.tolist(), np.array([value for _, value in inside])), each.place, stairs=True)
        )
    return [Panel(name, lines[:MOST_RANKS], across) for name, lines in list(by_name.items())[:MOST_COUNTERS]]


def _points(steps: Sequence[float], values: Floats) -> list[tuple[float, float]]:
    """Of long runs the mean of neighbours."""
    count = len(steps)
    apart = max(count // MOST_POINTS, 1)
    return [(float(steps[first]), float(np.mean(values[first : first + apart]))) for first in range(0, count, apart)]
