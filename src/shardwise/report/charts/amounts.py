"""Bars that are compared with each other: rows of amounts, each written behind its bar."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.ink import GREY, INK, PALE, PALETTE, width_of

LENGTH, MARGIN, THICK, ALONE, GAP = 460.0, 4.0, 14.0, 17.0, 8.0
HEAD, KEYS, NOTE = 30.0, 22.0, 22.0
WIDE = 1.15
"""of the widths that letters have on average: names may be all wide ones, and are not to be cut"""
LONGEST_NAME = 44
"""letters that are drawn; the whole name is told when the pointer rests on its bar"""


@dataclass(frozen=True)
class AmountRow:
    name: str
    amounts: Sequence[float | None]
    """one for each series; None: there is no bar"""
    words: Sequence[str]
    """the amounts as they are written elsewhere"""


@dataclass(frozen=True)
class AmountBars:
    title: str
    series: Sequence[str]
    """what each bar of a row is; one: the title says it"""
    rows: Sequence[AmountRow]
    note: str = ""


def amounts_svg(chart: AmountBars) -> str:
    """Every bar begins at zero: lengths may be compared."""
    several = len(chart.series) > 1
    thick = THICK if several else ALONE
    names = [_short(row.name) for row in chart.rows]
    known = [amount for row in chart.rows for amount in row.amounts if amount is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    scale = LENGTH / ((high - low) or 1.0)
    left = WIDE * max(map(width_of, names), default=0.0) + 10
    zero = left - low * scale
    right = max((width_of(word) for row in chart.rows for word in row.words), default=0.0) + 10
    top = HEAD + (KEYS if several else 0.0)
    pitch = thick * len(chart.series) + GAP
    foot = top + pitch * len(chart.rows)
    width = max(left + LENGTH + right, width_of(chart.title, 15, bold=True), left + width_of(chart.note))
    told = "; ".join(f"{row.name}: {', '.join(row.words)}" for row in chart.rows)
    drawing = Drawing(width + MARGIN, foot + (NOTE if chart.note else 0.0) + 4, chart.title, told)
    drawing.text(0, 20, chart.title, size=15, bold=True)
    if several:
        _keys(drawing, chart.series, left)
    for number, (row, name) in enumerate(zip(chart.rows, names, strict=True)):
        y = top + pitch * number
        drawing.text(left - 10, y + pitch / 2 + 4, name, anchor="end")
        for place, (amount, words) in enumerate(zip(row.amounts, row.words, strict=True)):
            at = y + GAP / 2 + place * thick
            drawing.rect(left, at, LENGTH, thick - 2, PALE)
            if amount is not None:
                drawing.rect(zero + min(amount, 0.0) * scale, at, max(abs(amount) * scale, 1.0), thick - 2,
                             PALETTE[place % len(PALETTE)], tip=f"{row.name}: {words}")  # fmt: skip
            drawing.text(left + LENGTH + 8, at + thick - 5, words, colour=None if amount is not None else GREY)
    drawing.line(zero, top, zero, foot, INK)
    if chart.note:
        drawing.text(left, foot + 17, chart.note, colour=GREY)
    return str(drawing)


def _keys(drawing: Drawing, series: Sequence[str], left: float) -> None:
    x = left
    for place, name in enumerate(series):
        drawing.rect(x, HEAD, 11, 11, PALETTE[place % len(PALETTE)])
        drawing.text(x + 16, HEAD + 10, name)
        x += 36 + width_of(name)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
