"""A simulated step as one picture: who does what when, and what each stage holds meanwhile. SVG, complete in itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import numpy as np

from shardwise.report.figure_lanes import COLOURS, COMPUTE, RECOMPUTE, Drawn, drawn, lane_paths, short
from shardwise.report.figure_memory import (
    GIB,
    TEXT_COLOUR,
    Panel,
    limit_line,
    memory_curves,
    panel_of,
    peak_label,
    stage_colour,
)
from shardwise.simulate.timeline import KINDS, LANES, Peak, Timeline
from shardwise.units import gib, time_text

WIDTH, LEFT, RIGHT = 1400.0, 128.0, 152.0
PLOT = WIDTH - LEFT - RIGHT
BUSY_X, PEAK_X = PLOT + 12, PLOT + 60
TOP = 122.0
MEMORY_HEIGHT = 230.0
GREY, GRID, IDLE = "#5b6068", "#dfe3e8", "#f0f2f4"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
ROWS = ((2, 44, 10, 14), (8, 26, 5, 10), (16, 20, 4, 7), (32, 12, 3, 5), (64, 8, 2, 3), (10**9, 5, 2, 2))
"""up to so many ranks: height of the compute lane, of a thin lane, gap between ranks"""
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
LABEL_PITCH = 14.0
DIGIT_PX = 6.5
"""of a micro-batch's number; a piece with room for it shows it"""
LEGEND_ORDER = ("forward", "backward", "input gradient", "weight gradient", "recompute", "optimizer", "other", "send",
                "collective", "reduce", "gather", "copy")  # fmt: skip
LEGEND_NAMES = {"reduce": "gradient reduction", "gather": "parameter gather", "copy": "copy to host"}
LEGEND_PX = 6.9
LETTER = 0.64
"""width of a bold letter over its size, about"""


@dataclass(frozen=True)
class TimelineFigure:
    """What a notebook shows when a cell ends with it."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class _Rows:
    """Where the lanes of each rank are."""

    compute: float
    thin: float
    gap: float
    lanes: tuple[int, ...]
    """thin ones, from top to bottom"""
    ranks: int

    @property
    def pitch(self) -> float:
        return self.compute + len(self.lanes) * (self.thin + 1) + self.gap

    @property
    def bottom(self) -> float:
        return TOP + self.ranks * self.pitch

    def top(self, rank: int, lane: int) -> float:
        start = TOP + rank * self.pitch
        return start if lane == COMPUTE else start + self.compute + 1 + self.lanes.index(lane) * (self.thin + 1)

    def height(self, lane: int) -> float:
        return self.compute if lane == COMPUTE else self.thin


def timeline_figure(timeline: Timeline, *, title: str, limit_bytes: float | None = None) -> TimelineFigure:
    """For notebooks: `timeline_figure(found.timeline(), title="...")` as the last line of a cell draws the step."""
    return TimelineFigure(timeline_svg(timeline, title=title, limit_bytes=limit_bytes))


def timeline_svg(timeline: Timeline, *, title: str, limit_bytes: float | None = None) -> str:
    """`limit_bytes`: what a GPU has room for; without it no limit is drawn."""
    rows = _rows_of(timeline)
    spans, peaks, busy = drawn(timeline, PLOT), timeline.peaks(), timeline.busy_share()
    panel = panel_of(peaks, rows.bottom + 66, MEMORY_HEIGHT, PLOT, limit_bytes)
    height = panel.top + panel.height + 44
    body = [
        *_heading(timeline, title),
        *_legend(timeline, rows, bool(spans.narrow.any())),
        f'<g transform="translate({short(LEFT)} 0)" font-size="12">',
        *_time_axis(timeline, rows, panel),
        *(line for rank in range(timeline.ranks) for line in _rank(timeline, rows, spans, rank)),
        *(line for rank in range(timeline.ranks) for line in _labels(timeline, rows, rank, busy[rank], peaks[rank])),
        *_memory_axis(timeline, panel),
        *memory_curves(timeline, panel),
        *([] if limit_bytes is None else limit_line(panel, limit_bytes)),
        *peak_label(timeline, peaks, panel, limit_bytes),
        "</g>",
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {short(WIDTH)} {short(height)}" '
        f'width="{short(WIDTH)}" height="{short(height)}" style="max-width:100%;height:auto" '
        f'font-family="{FONT}" fill="{TEXT_COLOUR}">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>' + "\n".join(body) + "</svg>\n"
    )


def _rows_of(timeline: Timeline) -> _Rows:
    compute, thin, gap = next(sizes for most, *sizes in ROWS if timeline.ranks <= most)
    used = tuple(lane for lane in np.unique(timeline.spans.lane).tolist() if lane != COMPUTE)
    return _Rows(compute, thin, gap, used, timeline.ranks)


def _heading(timeline: Timeline, title: str) -> Iterable[str]:
    gpus = int(timeline.gpus.sum())
    facts = (
        f"step {time_text(timeline.step_s)}, bubble {timeline.bubble():.1%} of it; {gpus:,} GPU{'s' * (gpus > 1)} in "
        f"{timeline.ranks} class{'es' * (timeline.ranks > 1)} that do the same at the same time"
    )
    size = min(21.0, (WIDTH - 48) / (LETTER * max(len(title), 1)))
    yield f'<text x="24" y="36" font-size="{short(size)}" font-weight="600">{escape(title)}</text>'
    yield f'<text x="24" y="59" font-size="14" fill="{GREY}">{facts}</text>'


def _legend(timeline: Timeline, rows: _Rows, shares: bool) -> Iterable[str]:
    present = {KINDS[kind] for kind in np.unique(timeline.spans.kind).tolist()}
    # a schedule that splits only some of its backwards draws both in one colour
    both = {"backward", "input gradient"} <= present
    x = 24.0
    for kind in LEGEND_ORDER:
        if kind not in present or (both and kind == "input gradient"):
            continue
        name = "backward / input gradient" if both and kind == "backward" else LEGEND_NAMES.get(kind, kind)
        yield f'<rect x="{short(x)}" y="75" width="13" height="13" rx="2" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{short(x + 18)}" y="86" font-size="13">{name}</text>'
        x += 36 + LEGEND_PX * len(name)
    notes = []
    if rows.lanes:
        notes.append(f"thin lanes, from the top: {', '.join(LANES[lane] for lane in rows.lanes)}")
    if shares:
        notes.append("where pieces are too narrow to draw, colours are as high as their share of the time")
    if timeline.ranks > timeline.stage.max() + 1:
        notes.append("*, dashed: pipelines with a straggler")
    yield f'<text x="24" y="107" font-size="12" fill="{GREY}">{"; ".join(notes)}</text>'
    for place, name in ((BUSY_X, "busy"), (PEAK_X, "peak GiB")):
        yield f'<text x="{short(LEFT + place)}" y="{short(TOP - 8)}" font-size="12" fill="{GREY}">{name}</text>'


def _time_axis(timeline: Timeline, rows: _Rows, panel: Panel) -> Iterable[str]:
    unit, scale = next((pair for pair in UNITS if timeline.step_s >= 2 * pair[1]), UNITS[-1])
    whole = timeline.step_s / scale
    step = _round_step(whole / 10)
    for number in np.arange(0.0, whole * (1 + 1e-9), step).tolist():
        x = number / whole * PLOT
        for top, bottom in ((TOP - 4, rows.bottom + 2), (panel.top, panel.top + panel.height)):
            yield f'<path d="M{short(x)} {short(top)}V{short(bottom)}" stroke="{GRID}"/>'
            yield f'<text x="{short(x)}" y="{short(bottom + 16)}" text-anchor="middle">{number:,.6g}</text>'
    for bottom in (rows.bottom + 2, panel.top + panel.height):
        yield f'<text x="{short(BUSY_X)}" y="{short(bottom + 16)}" fill="{GREY}">time, {unit}</text>'


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 and so on."""
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9)))


def _rank(timeline: Timeline, rows: _Rows, spans: Drawn, rank: int) -> Iterable[str]:
    stages = int(timeline.stage.max()) + 1
    top = rows.top(rank, COMPUTE)
    mine = spans.where(spans.rank == rank)
    yield f'<g data-rank="{rank}">'
    yield (
        f'<rect x="-9" y="{short(top)}" width="5" height="{short(rows.pitch - rows.gap)}" '
        f'fill="{stage_colour(int(timeline.stage[rank]), stages)}"/><rect y="{short(top)}" width="{short(PLOT)}" '
        f'height="{short(rows.compute)}" fill="{IDLE}"/>'
    )
    for lane in (COMPUTE, *rows.lanes):
        name = f"{_name(timeline, rank)}, {LANES[lane]}"
        yield from lane_paths(mine.where(mine.lane == lane), rows.top(rank, lane), rows.height(lane), name)
    yield from _numbers(mine, rows, rank)
    yield "</g>"


def _labels(timeline: Timeline, rows: _Rows, rank: int, busy: float, peak: Peak) -> Iterable[str]:
    if rank % int(np.ceil(LABEL_PITCH / rows.pitch)):
        return
    y = short(rows.top(rank, COMPUTE) + rows.compute / 2 + 4.5)
    gpus = _count(int(timeline.gpus[rank]))
    yield f'<text x="-15" y="{y}" text-anchor="end" font-size="13">{_name(timeline, rank)}{gpus}</text>'
    yield f'<text x="{short(BUSY_X)}" y="{y}">{busy:.0%}</text>'
    yield f'<text x="{short(PEAK_X)}" y="{y}">{gib(peak.bytes)}</text>'


def _name(timeline: Timeline, rank: int) -> str:
    """A second class of pipelines (one with a straggler) has the same stages again, marked."""
    return f"stage {timeline.stage[rank]}" + ("*" if rank > timeline.stage.max() else "")


def _count(gpus: int) -> str:
    return f'<tspan fill="{GREY}" font-size="11.5"> ×{gpus:,}</tspan>' if gpus > 1 else ""


def _numbers(spans: Drawn, rows: _Rows, rank: int) -> Iterable[str]:
    """Micro-batches, where there is room for them."""
    shown = spans.where((spans.lane == COMPUTE) & (spans.micro_batch >= 0) & (spans.kind != RECOMPUTE))
    digits = np.floor(np.log10(np.maximum(shown.micro_batch, 1))) + 1
    shown = shown.where(shown.width >= DIGIT_PX * digits + 4)
    if rows.compute < LABEL_PITCH or not len(shown.rank):
        return
    y = short(rows.top(rank, COMPUTE) + rows.compute / 2 + 4)
    yield '<g font-size="11" text-anchor="middle" pointer-events="none">'
    columns = (shown.kind, shown.micro_batch, shown.left + shown.width / 2)
    for kind, number, middle in zip(*(column.tolist() for column in columns), strict=True):
        ink = ' fill="#fff"' if KINDS[kind] in ("forward", "weight gradient") else ""
        yield f'<text x="{short(middle)}" y="{y}"{ink}>{number}</text>'
    yield "</g>"


def _memory_axis(timeline: Timeline, panel: Panel) -> Iterable[str]:
    step = _round_step(panel.most_bytes / GIB / 5)
    for number in np.arange(0.0, panel.most_bytes / GIB, step).tolist():
        y = panel.at(number * GIB)
        yield f'<path d="M0 {short(y)}H{short(PLOT)}" stroke="{GRID}"/>'
        yield f'<text x="-10" y="{short(y + 4)}" text-anchor="end">{number:,.6g}</text>'
    several = timeline.ranks > 1
    heading = "live memory of a GPU, GiB" + ("; colours are those beside the stages' names" if several else "")
    yield f'<text x="0" y="{short(panel.top - 10)}" font-size="13" font-weight="600">{heading}</text>'
