"""Figures as plain SVG text: points, bars, axes. No plotting library."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

import numpy as np

COLOURS = ("#1f6fb4", "#d9541e", "#2c9a47", "#8a4fb0", "#c79a00", "#0f9aa8", "#c2185b", "#6d4c41")
GREY = "#9aa0a6"
INK = "#222"


class Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    def add(self, text: str) -> None:
        self.parts.append(text)

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        self.add(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"'
            + (f' opacity="{opacity}"/>' if opacity < 1 else "/>")
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = INK, width: float = 1.0) -> None:
        self.add(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def text(self, x: float, y: float, words: str, anchor: str = "start", size: int = 12, turn: int = 0) -> None:
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{turned}'
        self.add(f"<text {place}>{escape(words)}</text>")

    def dots(self, points: Sequence[tuple[float, float]], colour: str, size: float = 3.4, opacity: float = 0.6) -> None:
        """One path for all points of a colour: each is a stroke of no length with round ends."""
        way = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        look = f'stroke="{colour}" stroke-width="{size}" stroke-linecap="round" opacity="{opacity}"'
        self.add(f'<path d="{way}" {look}/>')

    def __str__(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif" fill="{INK}">'
        )
        white = f'<rect width="{self.width}" height="{self.height}" fill="#fff"/>'
        return "\n".join([head, white, *self.parts, "</svg>"]) + "\n"


def scatter(series: list[tuple[str, list[tuple[float, float]]]], title: str, label_x: str, label_y: str) -> str:
    """Log-log, with the diagonal and the band of 20 % around it; series come with their names, largest first."""
    left, top, side = 70, 40, 560
    canvas = Canvas(left + side + 210, top + side + 60)
    every = np.array([value for _, points in series for point in points for value in point])
    low, high = floor(log10(every.min())), ceil(log10(every.max()))

    def at(value: float) -> float:
        return (log10(value) - low) / (high - low) * side

    def place(x: float, y: float) -> tuple[float, float]:
        return left + at(x), top + side - at(y)

    edge, other = 10.0**low, 10.0**high
    corners = [place(edge, edge), place(edge, edge * 1.2), place(other / 1.2, other), place(other, other),
               place(other, other / 1.2), place(edge * 1.2, edge)]  # fmt: skip
    canvas.add(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in corners)}Z" fill="#d5dfe9"/>')
    for decade in range(low, high + 1):
        tick = 10.0**decade
        name = f"{tick:g}"
        canvas.line(*place(tick, edge), *place(tick, other), "#ddd", 0.7)
        canvas.line(*place(edge, tick), *place(other, tick), "#ddd", 0.7)
        canvas.text(place(tick, edge)[0], top + side + 18, name, "middle")
        canvas.text(left - 8, place(edge, tick)[1] + 4, name, "end")
    canvas.line(*place(edge, edge), *place(other, other), "#555")
    for (name, points), colour in zip(series, [*COLOURS, *([GREY] * len(series))], strict=False):
        shown = GREY if name.startswith("other") else colour
        canvas.dots([place(x, y) for x, y in points], shown)
    for index, ((name, points), colour) in enumerate(zip(series, [*COLOURS, *([GREY] * len(series))], strict=False)):
        shown = GREY if name.startswith("other") else colour
        canvas.dots([(left + side + 18, top + 12 + 20 * index)], shown, 9, 1.0)
        canvas.text(left + side + 28, top + 16 + 20 * index, f"{name} ({len(points):,})")
    canvas.text(left + side + 12, top + 30 + 20 * len(series), "grey band: within 20 %")
    canvas.text(left, 24, title, size=15)
    canvas.text(left + side / 2, top + side + 42, label_x, "middle")
    canvas.text(20, top + side / 2, label_y, "middle", turn=-90)
    return str(canvas)


def histograms(series: list[tuple[str, list[float]]], title: str) -> str:
    """One small histogram per name: relative errors from -60 % to +60 % in steps of 5 %, the rest in the end bars."""
    columns, wide, tall, gap = 3, 250, 110, 46
    edges = np.linspace(-0.6, 0.6, 25)
    rows = ceil(len(series) / columns)
    canvas = Canvas(30 + columns * (wide + gap), 50 + rows * (tall + 62))
    canvas.text(20, 24, title, size=15)
    for index, (name, errors) in enumerate(series):
        x0, y0 = 30 + index % columns * (wide + gap), 62 + index // columns * (tall + 62)
        counts, _ = np.histogram(np.clip(errors, -0.599, 0.599), edges)
        step = wide / len(counts)
        canvas.rect(x0 + wide / 3, y0, wide / 3, tall, "#e6ecf2")
        for place, count in enumerate(counts):
            height = tall * count / max(counts.max(), 1)
            canvas.rect(x0 + place * step + 0.5, y0 + tall - height, step - 1, height, COLOURS[0])
        canvas.line(x0, y0 + tall, x0 + wide, y0 + tall)
        canvas.line(x0 + wide / 2, y0, x0 + wide / 2, y0 + tall, "#555", 0.8)
        for tick in (-0.6, -0.2, 0.0, 0.2, 0.6):
            canvas.text(x0 + (tick + 0.6) / 1.2 * wide, y0 + tall + 15, f"{tick:+.0%}" if tick else "0", "middle", 11)
        canvas.text(x0, y0 - 6, f"{name}: {len(errors)} rows, mean {np.mean(np.abs(errors)):.1%}", size=12)
    return str(canvas)


def bars(items: list[tuple[str, float, str]], title: str, label: str) -> str:
    """Horizontal bars of shares from 0 to 1; each with its name and a note."""
    left, wide, tall = 220, 420, 24
    canvas = Canvas(left + wide + 190, 70 + tall * len(items) + 30)
    canvas.text(20, 24, title, size=15)
    for index, (name, value, note) in enumerate(items):
        y = 46 + tall * index
        canvas.text(left - 8, y + 14, name, "end")
        canvas.rect(left, y + 2, wide, tall - 7, "#eef1f4")
        canvas.rect(left, y + 2, wide * min(value, 1.0), tall - 7, COLOURS[0])
        canvas.text(left + wide + 8, y + 14, f"{value:.1%} {note}")
    bottom = 46 + tall * len(items)
    canvas.line(left, bottom, left + wide, bottom)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        canvas.text(left + wide * tick, bottom + 16, f"{tick:.0%}", "middle", 11)
    canvas.text(left + wide / 2, bottom + 34, label, "middle")
    return str(canvas)
