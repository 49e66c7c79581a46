"""The lines of a reproduction as SVG text: self-contained, no script, system fonts."""

import math
from html import escape

from shardwise.sync._reproduce import Result

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 860, 440, 78, 48, 56, 240
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222", "#ee8866", "#44bb99",
           "#994455", "#004488")  # fmt: skip
GRID, INK = "#dddddd", "#222222"


class _Axis:
    def __init__(self, values: list[float], start: float, end: float, log: bool) -> None:
        self.log, self.start, self.end = log, start, end
        low, high = min(values), max(values)
        if not log:
            low = min(low, 0.0)
            high = high if high > low else low + 1.0
        elif low == high:
            low, high = low / 2.0, high * 2.0
        self.low, self.high = low, high

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten on a logarithmic axis (of two where there are few), about five round steps on a plain one."""
        if self.log:
            base = 10.0 if self.high / self.low > 30.0 else 2.0
            first, last = math.ceil(math.log(self.low, base) - 1e-9), math.floor(math.log(self.high, base) + 1e-9)
            every = max((last - first) // 8, 1)
            return [base**p for p in range(first, last + 1, every)]
        rough = (self.high - self.low) / 5
        size = 10 ** math.floor(math.log10(rough))
        step = next(m * size for m in (1, 2, 5, 10) if m * size >= rough)
        return [i * step for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def figure_of(result: Result) -> str:
    """Points that a logarithmic axis cannot show (zero, not finite) are left out."""
    shown = [(line.label, [(x, y) for x, y in line.points if _drawable(x, result.log_x) and _drawable(y, result.log_y)])
             for line in result.series]  # fmt: skip
    shown = [(label, points) for label, points in shown if points]
    right, foot = WIDTH - LEGEND, HEIGHT - BOTTOM
    across = _Axis([x for _, points in shown for x, _ in points], LEFT, right, result.log_x)
    up = _Axis([y for _, points in shown for _, y in points], foot, TOP, result.log_y)
    body = [_text(LEFT, 22, result.title, size=14, weight="bold")]
    for tick in up.ticks():
        body.append(_line(LEFT, up(tick), right, up(tick)))
        body.append(_text(LEFT - 8, up(tick) + 4, f"{tick:,.4g}", anchor="end"))
    for tick in across.ticks():
        body.append(_line(across(tick), TOP, across(tick), foot))
        body.append(_text(across(tick), foot + 18, f"{tick:,.6g}", anchor="middle"))
    body.append(_text((LEFT + right) / 2, foot + 42, result.x_title, anchor="middle"))
    body.append(_text(LEFT, TOP - 8, result.y_title))
    for index, (label, points) in enumerate(shown):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(points) <= 20:
            body += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        y = TOP + 12 + 20 * index
        body.append(f'<rect x="{right + 18}" y="{y - 5}" width="16" height="4" fill="{colour}"/>')
        body.append(_text(right + 40, y, label))
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="system-ui, sans-serif">')  # fmt: skip
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *body, "</svg>"]) + "\n"


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{GRID}"/>'


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", weight: str = "normal") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{INK}">{escape(words)}</text>')  # fmt: skip
