"""A chart of panels as SVG: domains, ticks, margins, legend."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.ink import GREY, GRID, INK, colour_of, dash_of, width_of
from shardwise.report.charts.marks import PanelPixels
from shardwise.report.charts.plot import (
    BandMark,
    Chart,
    ColumnsMark,
    DotsMark,
    LineMark,
    Mark,
    Panel,
    PlotAxis,
    RuleMark,
    ShadeMark,
)
from shardwise.report.charts.scale import Scale, apart

MARGIN, HEADING, ABOVE, BELOW, UNLABELLED, AXIS_TITLE, GAP, NOTE = 20.0, 36.0, 24.0, 22.0, 8.0, 20.0, 14.0, 17.0
ROOM = 1.08
"""above the highest point"""
COLUMN_GAP = 36.0
"""labels of horizontal axes reach past the ends of their panels"""
LEGEND_LINE = 20.0
TICK_PX = 30.0
"""between labels of the vertical axis, about"""


def chart_svg(chart: Chart) -> str:
    """Complete in itself: one file, no script, the viewer's own fonts."""
    layout = _Layout(chart)
    drawing = Drawing(layout.width, layout.height, chart.title, "; ".join(_told(chart)))
    if chart.heading:
        drawing.text(MARGIN, 24, chart.title, size=15, bold=True)
    if not layout.filled:
        drawing.text(MARGIN, layout.top + 30, chart.empty)
        return str(drawing)
    for number in range(len(chart.panels)):
        _panel(drawing, chart, layout, number)
    for index, line in enumerate(chart.notes):
        drawing.text(layout.left, layout.foot + NOTE * (index + 1), line, colour=GREY)
    _legend(drawing, chart, layout)
    return str(drawing)


def _told(chart: Chart) -> Iterator[str]:
    """For readers who cannot see it."""
    for panel in chart.panels:
        names = [mark.name for mark in panel.marks if isinstance(mark, LineMark | DotsMark) and mark.name]
        over = f" over {panel.x.title}" if panel.x.title else ""
        yield f"{panel.title}{over}" + (f": {', '.join(names)}" if names else "")
    yield from chart.notes


class _Layout:
    """Where the panels are, and what their axes span."""

    def __init__(self, chart: Chart) -> None:
        self.chart, panels = chart, chart.panels
        self.filled = any(True for panel in panels for mark in panel.marks for _ in _values(mark, 1))
        self._x = _ends(panels, lambda panel: panel.x, 0, 1.0)
        self._y = _ends(panels, lambda panel: panel.y, 1, ROOM)
        self.keys = list(_keys(chart))
        labels = max((width_of(p.y.text(tick)) for p in panels for tick in self.y_ticks(p)), default=0.0)
        self.left = MARGIN + labels + 8
        self.top = (HEADING if chart.heading else 0.0) + ABOVE
        self.between = self._between(labels)
        self.legend_x = self.left + chart.columns * (chart.panel_width + self.between)
        self.foot = self.corner(len(panels) - 1)[1] + chart.panel_height + self.below(len(panels) - 1)
        self.width, self.height = self._size()

    def _between(self, labels: float) -> float:
        """Two panels side by side; titles stand above their panels and may be wider."""
        rules = (m for p in self.chart.panels for m in p.marks if isinstance(m, RuleMark) and m.y is not None)
        beside = (0.0 if self.shared_y else labels) + max((width_of(rule.text) for rule in rules), default=0.0)
        titles = max((width_of(p.title, bold=True) for p in self.chart.panels), default=0.0) - self.chart.panel_width
        return (COLUMN_GAP if self.chart.columns > 1 else GAP) + max(beside, titles)

    def _size(self) -> tuple[float, float]:
        chart = self.chart
        keys = max((width_of(word) for mark, _ in self.keys for word in _words(mark)), default=0.0) + 40
        notes = self.left + max((width_of(line) for line in chart.notes), default=0.0)
        title = MARGIN + width_of(chart.title, 15, bold=True) if chart.heading else 0.0
        right = self.legend_x + (keys if chart.legend == "right" else 0.0)
        foot = self.foot + NOTE * len(chart.notes)
        foot += LEGEND_LINE * len(self.keys) + 6 if chart.legend == "below" else 0.0
        legend = self.top + sum(_height(mark) for mark, _ in self.keys) if chart.legend == "right" else 0.0
        return max(right, notes, title) + MARGIN, max(foot, legend) + 12

    @property
    def shared_y(self) -> bool:
        return all(a.y is b.y for a, b in pairwise(self.chart.panels))

    def corner(self, number: int) -> tuple[float, float]:
        row, column = divmod(number, self.chart.columns)
        top = self.top
        for above in range(row):
            top += self.chart.panel_height + ABOVE + self.below(above * self.chart.columns)
        return self.left + column * (self.chart.panel_width + self.between), top

    def labelled(self, number: int) -> bool:
        """Under this panel its horizontal axis has labels: the one below has another axis, or there is none."""
        below = number + self.chart.columns
        return below >= len(self.chart.panels) or self.chart.panels[below].x is not self.chart.panels[number].x

    def below(self, number: int) -> float:
        """Room for the labels and the title of a panel's horizontal axis."""
        if not self.labelled(number):
            return UNLABELLED
        return BELOW + (AXIS_TITLE if self.chart.panels and self.chart.panels[number].x.title else 0.0)

    def across(self, panel: Panel, left: float) -> Scale:
        low, high = self._x[id(panel.x)]
        return Scale(low, high, left, left + self.chart.panel_width, panel.x.log)

    def upwards(self, panel: Panel, top: float) -> Scale:
        low, high = self._y[id(panel.y)]
        return Scale(low, high, top + self.chart.panel_height, top, panel.y.log)

    def y_ticks(self, panel: Panel) -> list[float]:
        scale = self.upwards(panel, 0.0)
        return _ticks(panel.y, scale, round(min(max(self.chart.panel_height / TICK_PX, 2), 7)))


def _ends(
    panels: Sequence[Panel], axis_of: Callable[[Panel], PlotAxis], side: int, room: float
) -> dict[int, tuple[float, float]]:
    found: dict[int, tuple[float, float]] = {}
    for axis in {id(axis_of(panel)): axis_of(panel) for panel in panels}.values():
        values = [value for p in panels if axis_of(p) is axis for m in p.marks for value in _values(m, side)]
        low, high = min(values, default=1.0), max(values, default=1.0)
        if axis.log:
            low, high = low / room, high * room
        elif side:
            low, high = min(low, 0.0), high * room
        low, high = low if axis.low is None else axis.low, high if axis.high is None else axis.high
        found[id(axis)] = (low, high) if high > low or not side else (low, low + 1.0)
    return found


def _values(mark: Mark, side: int) -> Iterator[float]:
    """What there must be room for: across with side 0, upwards with 1."""
    if isinstance(mark, LineMark | DotsMark):
        yield from (point[side] for point in mark.points)
    elif isinstance(mark, BandMark):
        yield from (value for point in mark.points for value in (point[1:] if side else point[:1]))
    elif isinstance(mark, ColumnsMark) and side:
        yield from mark.heights
    elif isinstance(mark, RuleMark):
        yield from (place for place in [(mark.x, mark.y)[side]] if place is not None)


def _ticks(axis: PlotAxis, scale: Scale, about: int = 5) -> list[float]:
    return list(axis.ticks) if axis.ticks is not None else scale.ticks(about)


def _panel(drawing: Drawing, chart: Chart, layout: _Layout, number: int) -> None:
    panel = chart.panels[number]
    left, top = layout.corner(number)
    place = PanelPixels(drawing, layout.across(panel, left), layout.upwards(panel, top))
    drawing.text(left, top - 7, panel.title, bold=True)
    _axes(place, panel, layout, number)
    for mark in panel.marks:
        if isinstance(mark, ShadeMark | BandMark | ColumnsMark):
            place.fill(mark)
    drawing.line(place.left, place.foot, place.right, place.foot, INK)
    lines = count()
    for mark in panel.marks:
        if isinstance(mark, LineMark | DotsMark):
            index = next(lines)
            place.trace(mark, mark.colour or colour_of(index), "" if mark.colour else dash_of(index))
        elif isinstance(mark, RuleMark):
            place.rule(mark)


def _axes(place: PanelPixels, panel: Panel, layout: _Layout, number: int) -> None:
    drawing, across, up = place.drawing, place.across, place.up
    own = number % layout.chart.columns == 0 or not layout.shared_y
    for tick in layout.y_ticks(panel):
        drawing.line(place.left, up(tick), place.right, up(tick), GRID)
        if own:
            drawing.text(place.left - 8, up(tick) + 4, panel.y.text(tick), anchor="end", colour=GREY)
    ticks, labelled = _ticks(panel.x, across), layout.labelled(number)
    labels = [panel.x.text(tick) for tick in ticks]
    for index in apart((across(tick), width_of(text)) for tick, text in zip(ticks, labels, strict=True)):
        x = across(ticks[index])
        drawing.line(x, place.top, x, place.foot, GRID)
        if labelled:
            drawing.text(x, place.foot + 16, labels[index], anchor="middle", colour=GREY)
    if labelled and panel.x.title:
        drawing.text((place.left + place.right) / 2, place.foot + 34, panel.x.title, anchor="middle")


def _keys(chart: Chart) -> Iterator[tuple[LineMark | DotsMark, int]]:
    """Named lines and dots of the first panel, each with its place among all of them."""
    if chart.legend and chart.panels:
        lines = [mark for mark in chart.panels[0].marks if isinstance(mark, LineMark | DotsMark)]
        yield from ((mark, index) for index, mark in enumerate(lines) if mark.name)


def _words(mark: LineMark | DotsMark) -> list[str]:
    return [mark.name, mark.note] if isinstance(mark, LineMark) and mark.note else [mark.name]


def _height(mark: LineMark | DotsMark) -> float:
    return LEGEND_LINE + 15 * (len(_words(mark)) - 1)


def _legend(drawing: Drawing, chart: Chart, layout: _Layout) -> None:
    x, y = layout.legend_x, layout.top + 12
    if chart.legend == "below":
        x, y = layout.left, layout.foot + NOTE * (len(chart.notes) + 1) + 4
    for mark, index in layout.keys:
        colour = mark.colour or colour_of(index)
        if isinstance(mark, LineMark):
            drawing.line(x, y - 4, x + 24, y - 4, colour, width=3, dash="" if mark.colour else dash_of(index))
        else:
            drawing.circle(x + 12, y - 4, 4.5, colour)
        drawing.text(x + 32, y, mark.name)
        for line in _words(mark)[1:]:
            drawing.text(x + 32, y + 15, line, size=11, colour=GREY)
        y += _height(mark)
