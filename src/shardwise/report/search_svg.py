"""Quality against evaluations, one stepped line per method, as plain SVG text. No plotting library."""

from collections.abc import Sequence
from html import escape
from math import ceil, log10

from shardwise.search.methods import Comparison, Solution

COLOURS = ("#1f6fb4", "#d9541e", "#2c9a47", "#8a4fb0", "#c79a00")
LEFT, TOP, WIDE, TALL = 84, 44, 520, 300
INK, GRID = "#222", "#ddd"
LEAST_GAP = 1e-4
"""gaps below this are drawn on the lowest line: the optimum itself"""


def search_svg(found: Comparison, title: str) -> str:
    """Both axes logarithmic; the lowest line is the optimum (or, where none is proven, the bound)."""
    drawn = {name: solution for name, solution in found.solutions.items() if solution.trace}
    base = found.bound_s or min((s.step_s for s in drawn.values()), default=1.0)
    most = max((s.evaluations for s in drawn.values()), default=1)
    worst = max((step / base - 1.0 for s in drawn.values() for _, step in s.trace), default=1.0)
    right, high, low = max(ceil(log10(most)), 1), max(ceil(log10(max(worst, 0.01))), 0), round(log10(LEAST_GAP))

    def place(evaluations: float, gap: float) -> tuple[float, float]:
        up = (log10(max(gap, LEAST_GAP)) - low) / (high - low)
        return LEFT + log10(max(evaluations, 1)) / right * WIDE, TOP + TALL * (1.0 - up)

    parts = [_text(LEFT, 24, title, size=15)]
    for decade in range(right + 1):
        x, _ = place(10**decade, 1.0)
        parts += [_line(x, TOP, x, TOP + TALL), _text(x, TOP + TALL + 18, f"{10**decade:,}", "middle")]
    for decade in range(low, high + 1):
        _, y = place(1, 10.0**decade)
        name = f"{100 * 10.0**decade:g} %" if decade > low else "optimum" if found.optimum_s else "bound"
        parts += [_line(LEFT, y, LEFT + WIDE, y), _text(LEFT - 8, y + 4, name, "end")]
    for index, (name, solution) in enumerate(drawn.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = [place(at, step / base - 1.0) for at, step in solution.trace]
        parts += _stairs(points, place(solution.evaluations, 1.0)[0], colour)
        parts += _legend(TOP + 10 + 40 * index, name, solution, colour)
    parts.append(_text(LEFT + WIDE / 2, TOP + TALL + 42, "assignments priced", "middle"))
    parts.append(_text(20, TOP + TALL / 2, "step time above the lowest line", "middle", turn=-90))
    size = f'width="{LEFT + WIDE + 200}" height="{TOP + TALL + 60}"'
    box = f'viewBox="0 0 {LEFT + WIDE + 200} {TOP + TALL + 60}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="sans-serif" fill="{INK}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _stairs(points: Sequence[tuple[float, float]], end: float, colour: str) -> list[str]:
    """Level until the next improvement, then down; a dot where it was found last."""
    way = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    x, y = points[-1]
    return [
        f'<path d="{way}H{max(end, x):.1f}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
    ]


def _legend(y: float, name: str, solution: Solution, colour: str) -> list[str]:
    x = LEFT + WIDE + 24
    proven = "proven, " if solution.proven else ""
    return [
        f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{colour}"/>',
        _text(x + 12, y, f"{name}: {solution.step_s:.4g} s"),
        _text(x + 12, y + 15, f"{proven}{solution.seconds:.2g} s of search", size=11),
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{GRID}" stroke-width="0.8"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{turned}>'
            f"{escape(words)}</text>")  # fmt: skip
