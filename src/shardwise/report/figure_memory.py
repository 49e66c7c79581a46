"""Live memory of every stage over time as SVG lines under one limit, the fullest moment labelled."""

from dataclasses import dataclass

import numpy as np

from shardwise.report.figure_lanes import short
from shardwise.simulate.timeline import Floats, Peak, Timeline
from shardwise.units import gib

RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (200, 176, 32))
"""viridis without its palest end, which white swallows"""
MOST_POINTS = 30_000
LIMIT_COLOUR = "#c1121f"
TEXT_COLOUR = "#22262b"
GIB = 2.0**30
LABEL_PX = 7.0
"""a letter of the peak's label, about"""


@dataclass(frozen=True)
class Panel:
    """Where the curves are drawn: `top` is the height of `most_bytes`."""

    top: float
    height: float
    width: float
    most_bytes: float

    def heights(self, size: Floats) -> Floats:
        return np.asarray(self.top + self.height * (1.0 - size / self.most_bytes))

    def at(self, size: float) -> float:
        return self.top + self.height * (1.0 - size / self.most_bytes)


def stage_colour(stage: int, stages: int) -> str:
    place = (len(RAMP) - 1) * stage / max(stages - 1, 1)
    low = min(int(place), len(RAMP) - 2)
    rgb = [round(a + (place - low) * (b - a)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def panel_of(peaks: list[Peak], top: float, height: float, width: float, limit_bytes: float | None) -> Panel:
    most = max(peak.bytes for peak in peaks)
    return Panel(top, height, width, 1.12 * max(most, limit_bytes or 0.0, GIB))


def memory_curves(timeline: Timeline, panel: Panel) -> list[str]:
    stages = int(timeline.stage.max()) + 1
    columns = min(int(panel.width), MOST_POINTS // timeline.ranks)
    wide = 1.6 if timeline.ranks <= 16 else 1.0
    paths = []
    for rank, stage in enumerate(timeline.stage.tolist()):
        times, levels = timeline.levels(rank)
        x, size = _highest(times * panel.width / timeline.step_s, levels.sum(axis=1), panel.width / columns)
        y = panel.heights(size)
        lines = "".join(f"H{short(a)}V{short(b)}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        # a second class of pipelines (one with a straggler) holds the same stages again
        dash = ' stroke-dasharray="4 3"' if rank >= stages else ""
        paths.append(
            f'<path d="M0 {short(float(y[0]))}{lines}H{short(panel.width)}" fill="none" '
            f'stroke="{stage_colour(stage, stages)}" stroke-width="{wide}"{dash}><title>stage {stage}</title></path>'
        )
    return paths


def _highest(x: Floats, size: Floats, column: float) -> tuple[Floats, Floats]:
    """States, and where there are more of them than columns the highest of each column."""
    last = np.append(np.diff(x) > 0, True)
    x, size = x[last], size[last]
    if len(x) <= x[-1] / column:
        return x, size
    place = np.floor(x / column)
    first = np.flatnonzero(np.diff(place, prepend=-1.0))
    return place[first] * column, np.maximum.reduceat(size, first)


def limit_line(panel: Panel, limit_bytes: float) -> list[str]:
    y, x = panel.at(limit_bytes), short(panel.width + 12)
    return [
        f'<path d="M0 {short(y)}H{short(panel.width)}" stroke="{LIMIT_COLOUR}" stroke-width="1.5" '
        'stroke-dasharray="8 4"/>',
        f'<text x="{x}" y="{short(y + 4)}" fill="{LIMIT_COLOUR}">limit {gib(limit_bytes)} GiB</text>',
    ]


def peak_label(timeline: Timeline, peaks: list[Peak], panel: Panel, limit_bytes: float | None) -> list[str]:
    rank = max(range(timeline.ranks), key=lambda place: peaks[place].bytes)
    peak = peaks[rank]
    if not peak.bytes:
        return []
    over = limit_bytes is not None and peak.bytes > limit_bytes
    text = f"stage {timeline.stage[rank]}: {peak_text(peak)}" + (", does not fit" if over else "")
    x, y = peak.time_s * panel.width / timeline.step_s, panel.at(peak.bytes)
    left = min(max(x - LABEL_PX * len(text) / 2, 4.0), panel.width - LABEL_PX * len(text))
    colour = LIMIT_COLOUR if over else TEXT_COLOUR
    return [
        f'<circle cx="{short(x)}" cy="{short(y)}" r="4.5" fill="#fff" stroke="{colour}" stroke-width="2"/>',
        f'<text x="{short(left)}" y="{short(y - 10)}" fill="{colour}" font-weight="600" stroke="#fff" stroke-width="4" '
        f'stroke-linejoin="round" paint-order="stroke">{text}</text>',
    ]


def peak_text(peak: Peak) -> str:
    kind, size = max(peak.kinds.items(), key=lambda item: item[1])
    return f"{gib(peak.bytes)} GiB, the largest part {kind}: {gib(size)}"
