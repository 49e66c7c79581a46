"""Traffic matrices and loads over time as SVG."""

import math
from collections.abc import Sequence
from html import escape

from shardwise.fabric.requirement import Requirement
from shardwise.report.fabric_report import FabricReport

INK, GREY, GRID = "#22262b", "#5b6068", "#dfe3e8"
COLOURS = {"tp": "#4477aa", "cp": "#66ccee", "ep": "#228833", "pp": "#ccbb44", "dp": "#aa3377"}
CELL, GAP, HEAD = 14, 44, 40
WIDTH, LEFT, RIGHT, PANEL = 1080, 110, 90, 84


def svg_of(width: float, height: float, title: str, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">'
        f"<title>{escape(title)}</title>" + "\n".join(body) + "</svg>\n"
    )


def matrix_svg(report: FabricReport, sizes: dict[str, str]) -> str:
    """One heat map per kind, rows send; `sizes`: the kinds' totals in words."""
    blocks = len(report.blocks)
    cell = max(CELL, 96 // max(blocks, 1))
    pitch = blocks * cell + GAP
    body = []
    for number, (kind, table) in enumerate(report.matrix_bytes.items()):
        left, most = number * pitch, max(map(max, table))
        body.append(f'<text x="{left}" y="16" font-weight="600">{escape(kind)} {escape(sizes[kind])}</text>')
        for row, values in enumerate(table):
            for column, value in enumerate(values):
                opacity = 0.0 if value <= 0 else max(1.0 + math.log2(value / most) / 10, 0.06)
                told = f"{report.blocks[row]} to {report.blocks[column]}: {value / 1e9:,.3g} GB"
                body.append(
                    f'<rect x="{left + column * cell}" y="{HEAD + row * cell}" width="{cell - 1}" height="{cell - 1}" '
                    f'fill="{COLOURS.get(kind, INK)}" fill-opacity="{opacity:.2f}" stroke="{GRID}" '
                    f'stroke-width="0.5"><title>{escape(told)}</title></rect>'
                )
    foot = HEAD + blocks * cell + 16
    ends = f"rows send, columns receive; {report.blocks[0]} top left, {report.blocks[-1]} bottom right; log scale"
    body.append(f'<text x="0" y="{foot}" fill="{GREY}">{escape(ends)}</text>')
    return svg_of(max(len(report.matrix_bytes) * pitch, 620), foot + 8, "who sends to whom", body)


def series_svg(report: FabricReport, step_text: str) -> str:
    """The busiest link of each tier over the step, from the top, and the burst of the gradients enlarged."""
    panels = [(t.tier, t.series, t.mean_series, 0.0, report.step_s) for t in reversed(report.tiers)]
    if report.burst:
        burst = report.burst
        panels.append(("the burst", burst.series, (), burst.from_s, burst.to_s))
    body = []
    for number, (name, series, mean, start, end) in enumerate(panels):
        body += _panel(name, series, mean, 20 + number * (PANEL + 30), (start, end), number == len(panels) - 1)
        if report.burst and name != "the burst":
            body.append(_mark(report, 20 + number * (PANEL + 30)))
    foot = 20 + len(panels) * (PANEL + 30)
    told = f"share of capacity, mean of each part of a step of {step_text}; "
    told += "filled: busiest link, line: mean of the tier, shaded: burst"
    body.append(f'<text x="{LEFT}" y="{foot + 12}" fill="{GREY}">{escape(told)}</text>')
    return svg_of(WIDTH, foot + 24, "load over one step", body)


def _panel(
    name: str, series: Sequence[float], mean: Sequence[float], top: float, ends: tuple[float, float], last: bool
) -> list[str]:
    high = max(1.0, *series)
    width = WIDTH - LEFT - RIGHT

    def spots(values: Sequence[float]) -> str:
        each = width / len(values)
        return " ".join(
            f"{LEFT + (i + side) * each:.1f},{top + PANEL * (1 - value / high):.1f}"
            for i, value in enumerate(values)
            for side in (0, 1)
        )

    full = top + PANEL * (1 - 1 / high)
    found = [
        f'<text x="{LEFT - 8}" y="{top + PANEL / 2}" text-anchor="end" font-weight="600">{escape(name)}</text>',
        f'<line x1="{LEFT}" y1="{full:.1f}" x2="{WIDTH - RIGHT}" y2="{full:.1f}" stroke="{GREY}" '
        'stroke-dasharray="4 4"/>',
        f'<text x="{WIDTH - RIGHT + 6}" y="{full + 4:.1f}" fill="{GREY}">line rate</text>',
        f'<polygon points="{LEFT},{top + PANEL} {spots(series)} {WIDTH - RIGHT},{top + PANEL}" fill="#4477aa" '
        'fill-opacity="0.75"/>',
        f'<line x1="{LEFT}" y1="{top + PANEL}" x2="{WIDTH - RIGHT}" y2="{top + PANEL}" stroke="{INK}"/>',
        f'<text x="{WIDTH - RIGHT + 6}" y="{top + PANEL}" fill="{GREY}">highest {max(series):.0%}</text>',
    ]
    if mean:
        found.append(f'<polyline points="{spots(mean)}" fill="none" stroke="#c1121f" stroke-width="1.2"/>')
    if last or ends[0] > 0:
        found += [
            f'<text x="{x}" y="{top + PANEL + 15}" text-anchor="{anchor}" fill="{GREY}">{moment:.3g} s</text>'
            for x, anchor, moment in ((LEFT, "start", ends[0]), (WIDTH - RIGHT, "end", ends[1]))
        ]
    return found


def _mark(report: FabricReport, top: float) -> str:
    burst, width = report.burst, WIDTH - LEFT - RIGHT
    if burst is None:
        return ""
    start, end = (LEFT + width * moment / report.step_s for moment in (burst.start_s, burst.end_s))
    return (
        f'<rect x="{start:.1f}" y="{top}" width="{max(end - start, 1):.1f}" height="{PANEL}" fill="#c1121f" '
        'fill-opacity="0.1"/>'
    )


def bus_svg(need: Requirement) -> str:
    """Bus bandwidth to expect against size, with its band, for each collective worth testing."""
    curves = need.benchmark
    sizes = [e.bytes for e in curves[0].expected]
    most = 1.05 * max(e.high_bytes_per_s for b in curves for e in b.expected)
    width, height, left, foot = 720.0, 300.0, 60.0, 250.0

    def x(size: float) -> float:
        return left + math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0]) * (width - left - 40)

    def y(rate: float) -> float:
        return foot - rate / most * (foot - 40)

    body = [f'<line x1="{left}" y1="{foot}" x2="{width - 40}" y2="{foot}" stroke="{INK}"/>']
    for part in range(5):
        rate = most * part / 4
        body.append(
            f'<text x="{left - 6}" y="{y(rate) + 4:.1f}" text-anchor="end" fill="{GREY}">{rate / 1e9:,.0f}</text>'
        )
    body += [
        f'<text x="{x(size):.1f}" y="{foot + 18}" text-anchor="middle" fill="{GREY}">{size / 2**20:,.0f} MiB</text>'
        for size in sizes
    ]
    for number, curve in enumerate(curves):
        ink = tuple(COLOURS.values())[number % len(COLOURS)]
        high = [f"{x(e.bytes):.1f},{y(e.high_bytes_per_s):.1f}" for e in curve.expected]
        low = [f"{x(e.bytes):.1f},{y(e.low_bytes_per_s):.1f}" for e in reversed(curve.expected)]
        line = " ".join(f"{x(e.bytes):.1f},{y(e.bus_bytes_per_s):.1f}" for e in curve.expected)
        body.append(f'<polygon points="{" ".join(high + low)}" fill="{ink}" fill-opacity="0.2"/>')
        body.append(f'<polyline points="{line}" fill="none" stroke="{ink}" stroke-width="2"/>')
        body.append(f'<text x="{left + 10 + 220 * number}" y="18" fill="{ink}" font-weight="600">'
                    f"{escape(curve.op)} over {curve.ranks}</text>")  # fmt: skip
    body.append(f'<text x="{left}" y="{foot + 40}" fill="{GREY}">GB/s of bus bandwidth as nccl-tests counts it</text>')
    return svg_of(width, height, "bus bandwidth to expect", body)
