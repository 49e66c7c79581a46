"""Bars that lie: shares of one whole each, or one bar made of parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.ink import GREY, INK, PALE, PALETTE, width_of

LENGTH, PITCH, MARGIN, HEAD = 420.0, 24.0, 20.0, 46.0
WHOLE, THICK, LEGEND_LINE = 640.0, 20.0, 20.0


@dataclass(frozen=True)
class Bar:
    name: str
    share: float
    """from 0 to 1"""
    note: str


@dataclass(frozen=True)
class ShareBars:
    title: str
    bars: Sequence[Bar]
    axis: str


def bars_svg(chart: ShareBars) -> str:
    left = MARGIN + max((width_of(bar.name) for bar in chart.bars), default=0.0) + 8
    right = max((width_of(bar.note) for bar in chart.bars), default=0.0) + 8 + MARGIN
    foot = HEAD + PITCH * len(chart.bars)
    width = max(left + LENGTH + right, 2 * MARGIN + width_of(chart.title, 15, bold=True))
    drawing = Drawing(width, foot + 50, chart.title, "; ".join(f"{bar.name} {bar.note}" for bar in chart.bars))
    drawing.text(MARGIN, 24, chart.title, size=15, bold=True)
    for number, bar in enumerate(chart.bars):
        y = HEAD + PITCH * number
        drawing.text(left - 8, y + 14, bar.name, anchor="end")
        drawing.rect(left, y + 2, LENGTH, PITCH - 7, PALE)
        drawing.rect(left, y + 2, LENGTH * min(bar.share, 1.0), PITCH - 7, PALETTE[0])
        drawing.text(left + LENGTH + 8, y + 14, bar.note)
    drawing.line(left, foot, left + LENGTH, foot, INK)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawing.text(left + LENGTH * tick, foot + 16, f"{tick:.0%}", anchor="middle", colour=GREY)
    drawing.text(left + LENGTH / 2, foot + 36, chart.axis, anchor="middle")
    return str(drawing)


@dataclass(frozen=True)
class PartsBar:
    """One bar whose parts lie one after the other."""

    title: str
    parts: Sequence[tuple[str, float, str]]
    """(name, amount, the amount in words)"""
    whole: float
    """amount that fills the bar"""


def parts_svg(bar: PartsBar) -> str:
    parts = [part for part in bar.parts if part[1] > 0]
    shown = [(*part, PALETTE[place % len(PALETTE)]) for place, part in enumerate(parts)]
    scale = WHOLE / max(bar.whole, sum(amount for _, amount, _, _ in shown))
    places = _wrapped([f"{name} {words}" for name, _, words, _ in shown])
    foot = 24 + THICK + LEGEND_LINE
    drawing = Drawing(WHOLE, foot + LEGEND_LINE * max((row for _, row in places), default=0) + 8, bar.title,
                      "; ".join(f"{name} {words}" for name, _, words, _ in shown))  # fmt: skip
    drawing.text(0, 14, bar.title, bold=True)
    drawing.rect(0, 22, WHOLE, THICK, PALE)
    x = 0.0
    for (name, amount, words, colour), (left, row) in zip(shown, places, strict=True):
        drawing.rect(x, 22, amount * scale, THICK, colour, tip=f"{name}: {words}")
        x += amount * scale
        drawing.rect(left, foot + LEGEND_LINE * row - 10, 11, 11, colour)
        drawing.text(left + 16, foot + LEGEND_LINE * row, f"{name} {words}")
    return str(drawing)


def _wrapped(words: Sequence[str]) -> list[tuple[float, int]]:
    """(left, line) of each key of a legend."""
    found, x, row = [], 0.0, 0
    for text in words:
        wide = width_of(text) + 32
        if x and x + wide > WHOLE:
            x, row = 0.0, row + 1
        found.append((x, row))
        x += wide
    return found
