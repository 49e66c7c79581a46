"""Quality against evaluations and against time, one stepped line per method, as plain SVG text. No plotting library."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from shardwise.search.methods import Comparison, Solution
from shardwise.units import time_text

COLOURS = ("#1f6fb4", "#d9541e", "#2c9a47", "#8a4fb0", "#c79a00")
LEFT, TOP, WIDE, TALL, BETWEEN = 84, 44, 380, 300, 56
INK, GRID = "#222", "#ddd"
LEAST_GAP = 1e-4
"""gaps below this are drawn on the lowest line: the optimum itself"""
LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class _Panel:
    """Both axes logarithmic."""

    left: float
    first: int
    last: int
    """decades of the horizontal axis"""
    low: int
    high: int
    """decades of the gap"""

    def place(self, across: float, gap: float) -> tuple[float, float]:
        right = (log10(max(across, 10.0**self.first)) - self.first) / (self.last - self.first)
        up = (log10(max(gap, 10.0**self.low)) - self.low) / (self.high - self.low)
        return self.left + right * WIDE, TOP + TALL * (1.0 - up)


def search_svg(found: Comparison, title: str) -> str:
    """The lowest line is the optimum; where none is proven, the bound."""
    drawn = {name: solution for name, solution in found.solutions.items() if solution.trace}
    base = found.bound_s or min((s.objective_s for s in drawn.values()), default=1.0)
    worst = max((step / base - 1.0 for s in drawn.values() for _, _, step in s.trace), default=1.0)
    low, high = round(log10(LEAST_GAP)), max(ceil(log10(max(worst, 0.01))), 0)
    most = max((s.evaluations for s in drawn.values()), default=1)
    longest = max((s.seconds for s in drawn.values()), default=1.0)
    panels = [
        _Panel(LEFT, 0, max(ceil(log10(most)), 1), low, high),
        _Panel(LEFT + WIDE + BETWEEN, floor(log10(LEAST_SECONDS)), max(ceil(log10(longest)), 0), low, high),
    ]
    parts = [_text(LEFT, 24, title, size=15)]
    for panel, words in zip(panels, ("points priced", "seconds"), strict=True):
        parts += _grid(panel, words)
    parts += _gap_names(panels[0], found)
    for index, (name, solution) in enumerate(drawn.items()):
        colour = COLOURS[index % len(COLOURS)]
        for axis, panel in enumerate(panels):
            points = [panel.place(entry[axis], entry[2] / base - 1.0) for entry in solution.trace]
            end = panel.place((solution.evaluations, solution.seconds)[axis], 1.0)[0]
            parts += _stairs(points, end, colour)
        parts += _legend(TOP + 10 + 40 * index, name, solution, colour)
    parts.append(_text(20, TOP + TALL / 2, "above the lowest line", "middle", turn=-90))
    width, height = LEFT + 2 * WIDE + BETWEEN + 200, TOP + TALL + 60
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" fill="{INK}">')  # fmt: skip
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _grid(panel: _Panel, words: str) -> list[str]:
    parts = []
    for decade in range(panel.first, panel.last + 1):
        x, _ = panel.place(10.0**decade, 1.0)
        name = f"{10**decade:,}" if decade >= 0 else f"{10.0**decade:g}"
        parts += [_line(x, TOP, x, TOP + TALL), _text(x, TOP + TALL + 18, name, "middle")]
    for decade in range(panel.low, panel.high + 1):
        _, y = panel.place(1, 10.0**decade)
        parts.append(_line(panel.left, y, panel.left + WIDE, y))
    parts.append(_text(panel.left + WIDE / 2, TOP + TALL + 42, words, "middle"))
    return parts


def _gap_names(panel: _Panel, found: Comparison) -> list[str]:
    parts = []
    for decade in range(panel.low, panel.high + 1):
        name = f"{100 * 10.0**decade:g} %" if decade > panel.low else "optimum" if found.optimum_s else "bound"
        parts.append(_text(LEFT - 8, panel.place(1, 10.0**decade)[1] + 4, name, "end"))
    return parts


def _stairs(points: Sequence[tuple[float, float]], end: float, colour: str) -> list[str]:
    """Level until the next improvement, then down; a dot where it was found last."""
    way = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    x, y = points[-1]
    return [
        f'<path d="{way}H{max(end, x):.1f}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
    ]


def _legend(y: float, name: str, solution: Solution, colour: str) -> list[str]:
    x = LEFT + 2 * WIDE + BETWEEN + 24
    proven = "proven, " if solution.proven else ""
    return [
        f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{colour}"/>',
        _text(x + 12, y, f"{name}: {time_text(solution.objective_s)}"),
        _text(x + 12, y + 15, f"{proven}{solution.seconds:.2g} s of search", size=11),
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{GRID}" stroke-width="0.8"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{turned}>'
            f"{escape(words)}</text>")  # fmt: skip
