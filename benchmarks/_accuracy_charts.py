"""The pictures of the accuracy page: predicted against measured, errors by stack, speed of what was chosen."""

from collections.abc import Sequence
from math import ceil, floor, log10

import numpy as np

from shardwise.report.charts import (
    BandMark,
    Bar,
    Chart,
    ColumnsMark,
    DotsMark,
    LineMark,
    Mark,
    Panel,
    PlotAxis,
    RuleMark,
    ShadeMark,
    ShareBars,
    bars_svg,
    chart_svg,
)
from shardwise.report.charts.ink import GREY, PALETTE

NEAR = 0.2
MOST_ERROR = 0.6
"""errors beyond are in the outermost columns"""
COLUMNS = 24


def scatter(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], title: str, x: str, y: str) -> str:
    """Log-log, with the diagonal and the band of 20 % around it; series come with their names, largest first."""
    every = np.array([value for _, points in series for point in points for value in point])
    low, high = 10.0 ** floor(log10(every.min())), 10.0 ** ceil(log10(every.max()))
    corners = (low, low * (1 + NEAR), high / (1 + NEAR), high)
    marks: list[Mark] = [BandMark([(at, at / (1 + NEAR), at * (1 + NEAR)) for at in corners], PALETTE[0], 0.2)]
    for number, (name, points) in enumerate(series):
        colour = GREY if name.startswith("other") else PALETTE[number % len(PALETTE)]
        marks.append(DotsMark(points, f"{name} ({len(points):,})", colour, size=3.4, opacity=0.6))
    marks.append(LineMark([(low, low), (high, high)], colour=GREY, width=1.0))
    panel = Panel(y, marks, _decades(low, high, x), _decades(low, high))
    return chart_svg(Chart(title, [panel], panel_width=560.0, panel_height=560.0, legend="right",
                           notes=["shaded: within 20 %"]))  # fmt: skip


def _decades(low: float, high: float, title: str = "") -> PlotAxis:
    return PlotAxis(title, log=True, low=low, high=high, text=lambda value: f"{value:g}")


def histograms(series: Sequence[tuple[str, Sequence[float]]], title: str) -> str:
    """One small histogram per name: relative errors from -60 % to +60 % in steps of 5 %, the rest in the end bars."""
    across = PlotAxis(low=-MOST_ERROR, high=MOST_ERROR, text=lambda error: f"{error:+.0%}" if error else "0",
                      ticks=(-MOST_ERROR, -NEAR, 0.0, NEAR, MOST_ERROR))  # fmt: skip
    panels = []
    for name, errors in series:
        inside = np.clip(errors, -MOST_ERROR + 1e-3, MOST_ERROR - 1e-3)
        counts, _ = np.histogram(inside, np.linspace(-MOST_ERROR, MOST_ERROR, COLUMNS + 1))
        words = f"{name}: {len(errors)} rows, mean {np.mean(np.abs(errors)):.1%}"
        marks: list[Mark] = [ShadeMark(-NEAR, NEAR, PALETTE[0]), ColumnsMark(counts.tolist(), PALETTE[0]),
                             RuleMark("", x=0.0, dash="")]  # fmt: skip
        panels.append(Panel(words, marks, across, PlotAxis(low=0.0, text=lambda count: f"{count:,.0f}")))
    return chart_svg(Chart(title, panels, columns=3, panel_width=250.0, panel_height=110.0))


def bars(items: Sequence[tuple[str, float, str]], title: str, label: str) -> str:
    """Shares from 0 to 1, each with its name and a note."""
    return bars_svg(ShareBars(title, [Bar(name, share, f"{share:.1%} {note}") for name, share, note in items], label))
