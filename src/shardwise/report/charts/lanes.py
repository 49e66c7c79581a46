"""Who does what when: a row of lanes for each worker over one time axis, and curves over the same axis below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.report.charts.drawing import Drawing, short
from shardwise.report.charts.ink import ALARM, GREY, GRID, INK, ON_HUE, width_of
from shardwise.report.charts.lane_paths import LanePixels, LaneSpans, draw_lane, lane_pixels
from shardwise.report.charts.scale import Scale, round_step

WIDTH, LEFT, RIGHT, MARGIN = 1400.0, 128.0, 152.0, 24.0
PLOT = WIDTH - LEFT - RIGHT
CELLS = (PLOT + 12, PLOT + 60)
"""where the columns beside the rows begin"""
TOP, CURVES_HEIGHT = 122.0, 230.0
IDLE = "#f0f2f4"
SIZES = ((2, 44, 10, 14), (8, 26, 5, 10), (16, 20, 4, 7), (32, 12, 3, 5), (64, 8, 2, 3), (10**9, 5, 2, 2))
"""up to so many rows: height of the first lane, of the others, gap between rows"""
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
LABEL_PITCH = 14.0
DIGIT_PX = 6.5
"""of a number on a span"""
MOST_POINTS = 30_000
"""of all curves together"""
FIRST = 0
"""the lane that is drawn high"""


@dataclass(frozen=True)
class LaneKind:
    """What a span can be."""

    name: str
    colour: str
    light_ink: bool = False
    """numbers on it are white"""


@dataclass(frozen=True)
class LaneRow:
    name: str
    after: str
    """grey behind the name"""
    colour: str
    """of the bar beside the row and of its curve"""
    cells: tuple[str, str]
    """what stands to the right of it"""


@dataclass(frozen=True)
class LevelCurve:
    """A level that changes in steps."""

    name: str
    colour: str
    time: Floats
    level: Floats
    dashed: bool = False


@dataclass(frozen=True)
class LevelPanel:
    title: str
    curves: Sequence[LevelCurve]
    most: float
    """the highest level there must be room for"""
    limit: tuple[float, str] | None
    """a level nothing should pass, and its words"""
    label: tuple[float, float, str] | None
    """(time, level, words) of a moment worth naming"""


@dataclass(frozen=True)
class LaneChart:
    title: str
    facts: str
    kinds: Sequence[LaneKind]
    legend: Sequence[tuple[str, str]]
    """(words, colour)"""
    lanes: Sequence[str]
    """names; spans of lane 0 are drawn high, those of the others thin below"""
    rows: Sequence[LaneRow]
    heads: tuple[str, str]
    """over the rows' cells"""
    spans: LaneSpans
    whole_s: float
    """length of the time axis"""
    notes: Sequence[str]
    curves: LevelPanel


@dataclass(frozen=True)
class _LaneRows:
    """Where the lanes of each row are."""

    high: float
    thin: float
    gap: float
    lanes: tuple[int, ...]
    """thin ones, from top to bottom"""
    count: int

    @property
    def pitch(self) -> float:
        return self.high + len(self.lanes) * (self.thin + 1) + self.gap

    @property
    def bottom(self) -> float:
        return TOP + self.count * self.pitch

    def top(self, row: int, lane: int = FIRST) -> float:
        start = TOP + row * self.pitch
        return start if lane == FIRST else start + self.high + 1 + self.lanes.index(lane) * (self.thin + 1)

    def height(self, lane: int) -> float:
        return self.high if lane == FIRST else self.thin


def lanes_svg(chart: LaneChart) -> str:
    """Below a megabyte and a half however many spans there are."""
    high, thin, gap = next(sizes for most, *sizes in SIZES if len(chart.rows) <= most)
    used = tuple(lane for lane in np.unique(chart.spans.lane).tolist() if lane != FIRST)
    rows = _LaneRows(high, thin, gap, used, len(chart.rows))
    top = rows.bottom + 66
    level = Scale(0.0, 1.12 * chart.curves.most, top + CURVES_HEIGHT, top)
    pixels = lane_pixels(chart.spans, chart.whole_s, PLOT)
    drawing = Drawing(WIDTH, top + CURVES_HEIGHT + 44, chart.title, chart.facts)
    _heading(drawing, chart, rows, bool(pixels.narrow.any()))
    with drawing.group(transform=f"translate({short(LEFT)} 0)"):
        _time_axis(drawing, chart.whole_s, ((TOP - 4, rows.bottom + 2), (level.end, level.start)))
        for number in range(len(chart.rows)):
            _row(drawing, chart, rows, pixels.where(pixels.row == number), number)
        for number in range(0, len(chart.rows), math.ceil(LABEL_PITCH / rows.pitch)):
            _labels(drawing, chart.rows[number], rows.top(number) + rows.high / 2 + 4.5)
        _curves(drawing, chart.curves, level, chart.whole_s)
    return str(drawing)


def _heading(drawing: Drawing, chart: LaneChart, rows: _LaneRows, shares: bool) -> None:
    size = min(21.0, 21.0 * (WIDTH - 2 * MARGIN) / max(width_of(chart.title, 21.0, bold=True), 1.0))
    drawing.text(MARGIN, 36, chart.title, size=size, bold=True)
    drawing.text(MARGIN, 59, chart.facts, size=14, colour=GREY)
    x = MARGIN
    for words, colour in chart.legend:
        drawing.rect(x, 75, 13, 13, colour, rounded=2)
        drawing.text(x + 18, 86, words, size=13)
        x += 36 + width_of(words, 12)
    notes = [f"thin lanes, from the top: {', '.join(chart.lanes[lane] for lane in rows.lanes)}"] if rows.lanes else []
    if shares:
        notes.append("where pieces are too narrow to draw, colours are as high as their share of the time")
    drawing.text(MARGIN, 107, "; ".join([*notes, *chart.notes]), colour=GREY)
    for place, head in zip(CELLS, chart.heads, strict=True):
        drawing.text(LEFT + place, TOP - 8, head, colour=GREY)


def _time_axis(drawing: Drawing, whole_s: float, panels: Sequence[tuple[float, float]]) -> None:
    unit, scale = next((pair for pair in UNITS if whole_s >= 2 * pair[1]), UNITS[-1])
    whole = whole_s / scale
    for number in np.arange(0.0, whole * (1 + 1e-9), round_step(whole / 10)).tolist():
        x = number / whole * PLOT
        for top, bottom in panels:
            drawing.line(x, top, x, bottom, GRID)
            drawing.text(x, bottom + 16, f"{number:,.6g}", anchor="middle")
    for _, bottom in panels:
        drawing.text(CELLS[0], bottom + 16, f"time, {unit}", colour=GREY)


def _row(drawing: Drawing, chart: LaneChart, rows: _LaneRows, spans: LanePixels, number: int) -> None:
    kinds = tuple((kind.name, kind.colour) for kind in chart.kinds)
    top = rows.top(number)
    with drawing.group(data_row=str(number)):
        drawing.rect(-9, top, 5, rows.pitch - rows.gap, chart.rows[number].colour)
        drawing.rect(0, top, PLOT, rows.high, IDLE)
        for lane in (FIRST, *rows.lanes):
            name = f"{chart.rows[number].name}, {chart.lanes[lane]}"
            draw_lane(drawing, spans.where(spans.lane == lane), rows.top(number, lane), rows.height(lane), name, kinds)
        if rows.high >= LABEL_PITCH:
            _numbers(drawing, chart.kinds, spans, top + rows.high / 2 + 4)


def _numbers(drawing: Drawing, kinds: Sequence[LaneKind], spans: LanePixels, y: float) -> None:
    """On the spans with room for them."""
    shown = spans.where((spans.lane == FIRST) & (spans.number >= 0))
    digits = np.floor(np.log10(np.maximum(shown.number, 1))) + 1
    shown = shown.where(shown.width >= DIGIT_PX * digits + 4)
    if not len(shown.row):
        return
    columns = (shown.kind, shown.number, shown.left + shown.width / 2)
    with drawing.group(font_size="11", text_anchor="middle", pointer_events="none"):
        for kind, number, middle in zip(*(column.tolist() for column in columns), strict=True):
            drawing.text(middle, y, str(number), colour="#fff" if kinds[kind].light_ink else ON_HUE)


def _labels(drawing: Drawing, row: LaneRow, y: float) -> None:
    drawing.text(-15, y, row.name, anchor="end", size=13, after=row.after)
    for place, cell in zip(CELLS, row.cells, strict=True):
        drawing.text(place, y, cell)


def _curves(drawing: Drawing, curves: LevelPanel, level: Scale, whole_s: float) -> None:
    for tick in level.ticks():
        drawing.line(0, level(tick), PLOT, level(tick), GRID)
        drawing.text(-10, level(tick) + 4, f"{tick:,.6g}", anchor="end")
    drawing.text(0, level.end - 10, curves.title, size=13, bold=True)
    columns = min(int(PLOT), MOST_POINTS // max(len(curves.curves), 1))
    for curve in curves.curves:
        x, height = _highest(curve.time * PLOT / whole_s, curve.level, PLOT / columns)
        y = [level(each) for each in height.tolist()]
        way = "".join(f"H{short(a)}V{short(b)}" for a, b in zip(x.tolist(), y, strict=True))
        drawing.path(f"M0 {short(y[0])}{way}H{short(PLOT)}", fill="none", stroke=curve.colour, tip=curve.name,
                     width=1.6 if len(curves.curves) <= 16 else 1.0, dash="4 3" if curve.dashed else "")  # fmt: skip
    if curves.limit is not None:
        at, words = curves.limit
        drawing.line(0, level(at), PLOT, level(at), ALARM, width=1.5, dash="8 4")
        drawing.text(PLOT + 12, level(at) + 4, words, colour=ALARM)
    if curves.label is not None:
        _label(
            drawing, *curves.label, level, whole_s, over=curves.limit is not None and curves.label[1] > curves.limit[0]
        )


def _label(drawing: Drawing, moment: float, at: float, words: str, level: Scale, whole_s: float, *, over: bool) -> None:
    x, wide, colour = moment * PLOT / whole_s, width_of(words), ALARM if over else INK
    drawing.circle(x, level(at), 4.5, "#fff", ring=colour)
    left = min(max(x - wide / 2, 4.0), PLOT - wide)
    drawing.text(left, level(at) - 10, words, colour=colour, bold=True, halo=True)


def _highest(x: Floats, level: Floats, column: float) -> tuple[Floats, Floats]:
    """States, and where there are more of them than columns the highest of each column."""
    last = np.append(np.diff(x) > 0, True)
    x, level = x[last], level[last]
    if len(x) <= x[-1] / column:
        return x, level
    place = np.floor(x / column)
    first = np.flatnonzero(np.diff(place, prepend=-1.0))
    return place[first] * column, np.maximum.reduceat(level, first)
