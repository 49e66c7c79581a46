"""A small line chart as SVG text: panels above each other over one logarithmic axis."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 720, 72, 40, 58, 170, 28, 40
LINES, MARK, GRID, INK = (
    ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#777777"),
    "#aa3377",
    "#dddddd",
    "#222222",
)
DASHES = ("", "6 3", "2 3")
"""lines beyond the colours are dashed"""
NAME = 16
"""pixels the name of a line needs"""
LABEL = 62
"""pixels a label of the axis needs"""


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Panel:
    title: str
    lines: tuple[Points, ...]
    log: bool


@dataclass(frozen=True)
class Figure:
    title: str
    x_title: str
    x_text: Callable[[float], str]
    panels: tuple[Panel, ...]
    mark: tuple[float, str] | None
    """a place on the axis worth a line, and what it means"""
    names: tuple[str, ...] = ()
    """of the lines, where there are several"""


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + share * (self.end - self.start)


def svg_of(figure: Figure) -> str:
    """Self-contained: no script, no outside file, system fonts."""
    values = [x for panel in figure.panels for line in panel.lines for x, _ in line]
    foot = TOP + len(figure.panels) * (PANEL + GAP) - GAP
    height = foot + GAP + BOTTOM + NAME * len(figure.names)
    body = [_text(LEFT, 24, figure.title, size=15, weight="bold")]
    if not values:
        body.append(_text(LEFT, TOP + 40, "nothing fits"))
        return _document(height, body)
    ends = [*values, figure.mark[0]] if figure.mark else values
    across = _Scale(min(ends), max(ends), LEFT, WIDTH - RIGHT, log=True)
    for index, panel in enumerate(figure.panels):
        body += _panel(panel, across, TOP + index * (PANEL + GAP))
    body += _axis(figure, across, sorted(set(values)), foot)
    if figure.mark:
        x = across(figure.mark[0])
        body.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{foot}" stroke="{MARK}" stroke-dasharray="5 4"/>')
        body.append(_text(LEFT, foot + 56, figure.mark[1], colour=MARK))
    for index, name in enumerate(figure.names):
        y = foot + GAP + BOTTOM + NAME * index
        body.append(f'<line x1="{LEFT}" y1="{y - 4}" x2="{LEFT + 28}" y2="{y - 4}" {_stroke(index)}/>')
        body.append(_text(LEFT + 36, y, name))
    return _document(height, body)


def _document(height: int, body: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *body, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", weight: str = "normal",
          colour: str = INK) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(words)}</text>'
    )


def _stroke(index: int) -> str:
    dash = DASHES[index // len(LINES) % len(DASHES)]
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{LINES[index % len(LINES)]}" stroke-width="2"{pattern}'


def _panel(panel: Panel, across: _Scale, top: float) -> list[str]:
    heights = [y for line in panel.lines for _, y in line]
    low = min(heights) * 0.9 if panel.log else 0.0
    up = _Scale(low, max(heights) * (1.1 if panel.log else 1.15), top + PANEL, top, log=panel.log)
    parts = [_text(LEFT, top - 5, panel.title, weight="bold")]
    for tick in _ticks(up.low, up.high, log=panel.log):
        y = up(tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{tick:,.4g}", anchor="end"))
    for index, line in enumerate(panel.lines):
        parts += _line(line, index, across, up)
    return parts


def _line(points: Points, index: int, across: _Scale, up: _Scale) -> list[str]:
    spots = [(across(x), up(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    parts = [f'<polyline points="{path}" fill="none" {_stroke(index)}/>']
    colour = LINES[index % len(LINES)]
    for (x, y), (_, value) in zip(spots, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{value:.4g}</title></circle>')
    return parts


def _ticks(low: float, high: float, *, log: bool) -> list[float]:
    """Round numbers: 1, 2 and 5 times powers of ten; on a plain or narrow scale about five equal steps."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
        if len(found) > 2:
            return found
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _axis(figure: Figure, across: _Scale, values: list[float], foot: float) -> list[str]:
    line = f'<line x1="{LEFT}" y1="{foot}" x2="{WIDTH - RIGHT}" y2="{foot}" stroke="{INK}"/>'
    labels = [_text(across(v), foot + 16, figure.x_text(v), anchor="middle") for v in _apart(values, across)]
    return [line, *labels, _text((LEFT + WIDTH - RIGHT) / 2, foot + 36, figure.x_title, anchor="middle")]


def _apart(values: list[float], across: _Scale) -> list[float]:
    """Values whose labels do not touch; the last one is always there."""
    kept = [values[-1]]
    for value in reversed(values[:-1]):
        if across(kept[-1]) - across(value) >= LABEL:
            kept.append(value)
    return kept
