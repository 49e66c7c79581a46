"""Lines, dots, bands, columns and rules of one panel, in pixels."""

from dataclasses import dataclass
from itertools import pairwise

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.ink import ALARM, GREY, width_of
from shardwise.report.charts.plot import BandMark, ColumnsMark, DotsMark, LineMark, RuleMark, ShadeMark
from shardwise.report.charts.scale import Scale


@dataclass(frozen=True)
class PanelPixels:
    """One panel: its scales and where it is."""

    drawing: Drawing
    across: Scale
    up: Scale

    @property
    def left(self) -> float:
        return self.across.start

    @property
    def right(self) -> float:
        return self.across.end

    @property
    def top(self) -> float:
        return self.up.end

    @property
    def foot(self) -> float:
        return self.up.start

    def trace(self, mark: LineMark | DotsMark, colour: str, dash: str) -> None:
        spots = [(self.across(x), self.up(y)) for x, y in mark.points]
        if isinstance(mark, DotsMark):
            self._dots(mark, spots, colour)
            return
        if not spots:
            return
        way = [spots[0], *((x, y) for (_, before), (to, now) in pairwise(spots) for x, y in ((to, before), (to, now)))]
        self.drawing.polyline(way if mark.stairs else spots, colour, width=mark.width, dash=dash, tip=mark.name)
        if mark.dots:
            for (x, y), (_, value) in zip(spots, mark.points, strict=True):
                self.drawing.circle(x, y, 3.5, colour, tip=f"{value:.4g}")

    def _dots(self, mark: DotsMark, spots: list[tuple[float, float]], colour: str) -> None:
        if not mark.tips:
            self.drawing.dots(spots, colour, mark.size, mark.opacity)
            return
        for number, ((x, y), tip) in enumerate(zip(spots, mark.tips, strict=True)):
            ringed = number in mark.ringed
            self.drawing.circle(x, y, mark.size + 3 * ringed, colour, opacity=mark.opacity, tip=tip,
                                ring=ALARM if ringed else None)  # fmt: skip

    def fill(self, mark: ShadeMark | BandMark | ColumnsMark) -> None:
        if isinstance(mark, ShadeMark):
            start, end = self.across(mark.low), self.across(mark.high)
            self.drawing.rect(start, self.top, max(end - start, 1.0), self.foot - self.top, mark.colour,
                              opacity=mark.opacity)  # fmt: skip
        elif isinstance(mark, BandMark):
            ends = [(self.across(x), self._inside(low), self._inside(high)) for x, low, high in mark.points]
            way = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
            self.drawing.polygon(way, mark.colour, opacity=mark.opacity)
        else:
            self._columns(mark)

    def _inside(self, value: float) -> float:
        return self.up(min(max(value, self.up.low), self.up.high))

    def _columns(self, mark: ColumnsMark) -> None:
        each = (self.right - self.left) / len(mark.heights)
        tops = [self._inside(height) for height in mark.heights]
        if not mark.gap:
            way = [(self.left + (i + side) * each, y) for i, y in enumerate(tops) for side in (0, 1)]
            around = [(self.left, self.foot), *way, (self.right, self.foot)]
            self.drawing.polygon(around, mark.colour, opacity=mark.opacity)
            return
        for i, y in enumerate(tops):
            if y < self.foot:
                self.drawing.rect(self.left + i * each + mark.gap / 2, y, each - mark.gap, self.foot - y, mark.colour,
                                  tip=f"{mark.heights[i]:,g}")  # fmt: skip

    def rule(self, mark: RuleMark) -> None:
        colour = mark.colour or GREY
        if mark.y is not None:
            y = self.up(mark.y)
            self.drawing.line(self.left, y, self.right, y, colour, dash=mark.dash)
            self.drawing.text(self.right + 6, y + 4, mark.text, colour=colour)
        if mark.x is not None:
            x = self.across(mark.x)
            self.drawing.line(x, self.top, x, self.foot, colour, dash=mark.dash)
            if mark.text:
                beyond = x + 6 + width_of(mark.text) > self.right
                side = (x - 6, "end") if beyond else (x + 6, None)
                self.drawing.text(side[0], self.top + 12, mark.text, anchor=side[1], colour=colour, halo=True)
