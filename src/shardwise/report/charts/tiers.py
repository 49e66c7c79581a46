"""Rows of boxes with lines between them, all coloured by load: the switches and nodes of a fabric."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.ink import GREY, HEAT, between

WIDTH, LEFT, RIGHT, PITCH, BOX, TOP, WIDEST = 1080.0, 130.0, 20.0, 92.0, 22.0, 40.0, 60.0
SCALE_STEPS = 20


@dataclass(frozen=True)
class TierBox:
    load: float
    tip: str


@dataclass(frozen=True)
class TierRow:
    name: str
    note: str
    boxes: Sequence[TierBox]

    def x(self, box: int) -> float:
        return LEFT + (box + 0.5) * (WIDTH - LEFT - RIGHT) / len(self.boxes)


@dataclass(frozen=True)
class TierLine:
    row: int
    """from this row to the next one"""
    upper: int
    lower: int
    """places of the boxes in their rows"""
    load: float
    tip: str


@dataclass(frozen=True)
class TierChart:
    title: str
    rows: Sequence[TierRow]
    """from the top"""
    lines: Sequence[TierLine]
    caption: str
    most: float
    """the load that is drawn in the last colour"""
    ends: tuple[str, str]
    """words for no load and for `most`"""


def tiers_svg(chart: TierChart) -> str:
    height = TOP + len(chart.rows) * PITCH
    drawing = Drawing(WIDTH, height, chart.title, chart.caption)
    most = chart.most or 1.0
    for line in sorted(chart.lines, key=lambda each: (each.row, each.load)):
        upper, lower = chart.rows[line.row], chart.rows[line.row + 1]
        drawing.line(upper.x(line.upper), TOP + line.row * PITCH + BOX, lower.x(line.lower),
                     TOP + (line.row + 1) * PITCH, between(HEAT, line.load / most),
                     width=0.5 + line.load / most, opacity=0.6, tip=line.tip)  # fmt: skip
    for place, row in enumerate(chart.rows):
        _row(drawing, row, TOP + place * PITCH, most)
    drawing.text(LEFT, height - 18, chart.caption, size=14, bold=True)
    _scale(drawing, chart.ends, height - 18)
    return str(drawing)


def _row(drawing: Drawing, row: TierRow, top: float, most: float) -> None:
    width = min((WIDTH - LEFT - RIGHT) / len(row.boxes) - 2, WIDEST)
    drawing.text(0, top + 10, row.name, size=13, bold=True)
    drawing.text(0, top + 26, row.note, colour=GREY)
    for place, box in enumerate(row.boxes):
        drawing.rect(row.x(place) - width / 2, top, width, BOX, between(HEAT, box.load / most), stroke=GREY, rounded=3,
                     tip=box.tip)  # fmt: skip


def _scale(drawing: Drawing, ends: tuple[str, str], y: float) -> None:
    x = WIDTH - 300
    for step in range(SCALE_STEPS):
        drawing.rect(x + 10 * step, y - 12, 10, 14, between(HEAT, step / (SCALE_STEPS - 1)))
    drawing.text(x - 6, y, ends[0], anchor="end", colour=GREY)
    drawing.text(x + 10 * SCALE_STEPS + 6, y, ends[1], colour=GREY)
