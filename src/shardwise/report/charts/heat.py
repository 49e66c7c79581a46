"""Heat maps side by side: who sends how much to whom."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.ink import GREY, GRID, width_of

CELL, LARGEST, GAP, HEAD = 14, 96, 44, 40
DOUBLINGS = 10
"""from the fullest cell to the palest colour: a factor of 1,024"""
PALEST = 0.06
"""what is not zero can be seen"""


@dataclass(frozen=True)
class HeatMap:
    title: str
    values: Sequence[Sequence[float]]
    colour: str
    tips: Sequence[Sequence[str]]


@dataclass(frozen=True)
class HeatMaps:
    title: str
    maps: Sequence[HeatMap]
    note: str


def heat_svg(chart: HeatMaps) -> str:
    """Darker by the logarithm of a cell's share of the fullest."""
    blocks = max((len(each.values) for each in chart.maps), default=1)
    cell = max(CELL, LARGEST // max(blocks, 1))
    pitch = max([blocks * cell, *(width_of(each.title, bold=True) for each in chart.maps)]) + GAP
    foot = HEAD + blocks * cell + 16
    width = max(len(chart.maps) * pitch, width_of(chart.note))
    drawing = Drawing(width, foot + 8, chart.title, chart.note)
    for number, each in enumerate(chart.maps):
        left, most = number * pitch, max(map(max, each.values))
        drawing.text(left, 16, each.title, bold=True)
        for row, (values, tips) in enumerate(zip(each.values, each.tips, strict=True)):
            for column, (value, tip) in enumerate(zip(values, tips, strict=True)):
                drawing.rect(left + column * cell, HEAD + row * cell, cell - 1, cell - 1, each.colour,
                             opacity=_opacity(value, most), stroke=GRID, tip=tip)  # fmt: skip
    drawing.text(0, foot, chart.note, colour=GREY)
    return str(drawing)


def _opacity(value: float, most: float) -> float:
    return 0.0 if value <= 0 else max(1.0 + math.log2(value / most) / DOUBLINGS, PALEST)
