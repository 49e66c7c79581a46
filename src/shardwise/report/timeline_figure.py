"""A simulated step as one picture: who does what when, and what each stage holds meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.report.charts import LaneChart, LaneKind, LaneRow, LaneSpans, LevelCurve, LevelPanel, lanes_svg
from shardwise.report.charts.ink import in_order
from shardwise.step.simulate.timeline import KINDS, LANES, Peak, Spans, Timeline
from shardwise.units import gib, time_text

COLOURS = {
    "forward": "#0072b2", "backward": "#e69f00", "input gradient": "#e69f00", "weight gradient": "#009e73",
    "recompute": "#56b4e9", "optimizer": "#332288", "other": "#a9adb3", "send": "#5b6068", "collective": "#cc79a7",
    "reduce": "#d55e00", "gather": "#882255", "copy": "#999933",
}  # fmt: skip
"""the colours of Okabe and Ito, and of Tol's muted set where those run out: apart for every kind of colour vision"""
LEGEND_NAMES = {"reduce": "gradient reduction", "gather": "parameter gather", "copy": "copy to host"}
LIGHT_INK = ("forward", "weight gradient")
GIB = 2.0**30
RECOMPUTE = KINDS.index("recompute")
REPEATING = [KINDS.index(kind) for kind in ("backward", "input gradient")]


@dataclass(frozen=True)
class TimelineFigure:
    """What a notebook shows when a cell ends with it."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg


def timeline_figure(timeline: Timeline, *, title: str, limit_bytes: float | None = None) -> TimelineFigure:
    """For notebooks: `timeline_figure(found.timeline(), title="...")` as the last line of a cell draws the step."""
    return TimelineFigure(timeline_svg(timeline, title=title, limit_bytes=limit_bytes))


def timeline_svg(timeline: Timeline, *, title: str, limit_bytes: float | None = None) -> str:
    """`limit_bytes`: what a GPU has room for; without it no limit is drawn."""
    return lanes_svg(timeline_chart(timeline, title=title, limit_bytes=limit_bytes))


def timeline_chart(timeline: Timeline, *, title: str, limit_bytes: float | None = None) -> LaneChart:
    gpus, ranks = int(timeline.gpus.sum()), timeline.ranks
    peaks = timeline.peaks()
    straggling = ["*, dashed: pipelines with a straggler"] if ranks > timeline.stage.max() + 1 else []
    return LaneChart(
        title=title,
        facts=f"step {time_text(timeline.step_s)}, bubble {timeline.bubble_share():.1%} of it; {gpus:,} "
        f"GPU{'s' * (gpus > 1)}"
        f" in {ranks} class{'es' * (ranks > 1)} that do the same at the same time",
        kinds=[LaneKind(kind, COLOURS[kind], kind in LIGHT_INK) for kind in KINDS],
        legend=_legend(timeline),
        lanes=LANES,
        rows=_rows(timeline, peaks),
        heads=("busy", "peak GiB"),
        spans=_spans(timeline.spans),
        whole_s=timeline.step_s,
        notes=straggling,
        curves=_memory(timeline, peaks, limit_bytes),
    )


def _legend(timeline: Timeline) -> list[tuple[str, str]]:
    present = {KINDS[kind] for kind in np.unique(timeline.spans.kind).tolist()}
    # a schedule that splits only some of its backwards draws both in one colour
    both = {"backward", "input gradient"} <= present
    found = []
    for kind, colour in COLOURS.items():
        if kind in present and not (both and kind == "input gradient"):
            name = "backward / input gradient" if both and kind == "backward" else LEGEND_NAMES.get(kind, kind)
            found.append((name, colour))
    return found


def _rows(timeline: Timeline, peaks: Sequence[Peak]) -> list[LaneRow]:
    columns = (timeline.stage.tolist(), timeline.gpus.tolist(), timeline.busy_share(), peaks)
    return [
        LaneRow(
            _name(timeline, rank), f" ×{gpus:,}" if gpus > 1 else "", _colour(timeline, stage),
            (f"{busy:.0%}", gib(peak.bytes)),
        )
        for rank, (stage, gpus, busy, peak) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def _name(timeline: Timeline, rank: int) -> str:
    """A second class of pipelines (one with a straggler) has the same stages again, marked."""
    return f"stage {timeline.stage[rank]}" + ("*" if _repeated(timeline, rank) else "")


def _repeated(timeline: Timeline, rank: int) -> bool:
    return rank > int(timeline.stage.max())


def _colour(timeline: Timeline, stage: int) -> str:
    return in_order(stage, int(timeline.stage.max()) + 1)


def _spans(spans: Spans) -> LaneSpans:
    number = np.where(spans.kind == RECOMPUTE, -1, spans.micro_batch)
    return LaneSpans(spans.rank, spans.lane, spans.kind, number, _starts(spans), spans.end_s, spans.piped)


def _starts(spans: Spans) -> Floats:
    """A backward is drawn from the end of its recompute on, so that neither covers the other."""
    start = spans.start_s.copy()
    again = np.flatnonzero(spans.kind == RECOMPUTE)
    parents = np.flatnonzero(np.isin(spans.kind, REPEATING) & spans.of("compute"))
    place = dict(zip(_keys(spans, parents), parents.tolist(), strict=True)) if len(again) else {}
    for key, row in zip(_keys(spans, again), again.tolist(), strict=True):
        if key in place:
            start[place[key]] = spans.end_s[row]
    return start


def _keys(spans: Spans, rows: Ints) -> list[tuple[float, ...]]:
    columns = (spans.rank[rows], spans.micro_batch[rows], spans.chunk[rows], spans.start_s[rows])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _memory(timeline: Timeline, peaks: Sequence[Peak], limit_bytes: float | None) -> LevelPanel:
    curves = []
    for rank, stage in enumerate(timeline.stage.tolist()):
        times, levels = timeline.levels(rank)
        curves.append(LevelCurve(f"stage {stage}", _colour(timeline, stage), times, levels.sum(axis=1) / GIB,
                                 _repeated(timeline, rank)))  # fmt: skip
    most = max(max(peak.bytes for peak in peaks), limit_bytes or 0.0, GIB)
    several = "; colours are those next to the stages' names" if timeline.ranks > 1 else ""
    return LevelPanel(
        title=f"live memory of a GPU, GiB{several}", curves=curves, most=most / GIB,
        limit=None if limit_bytes is None else (limit_bytes / GIB, f"limit {gib(limit_bytes)} GiB"),
        label=_fullest(timeline, peaks, limit_bytes),
    )  # fmt: skip


def _fullest(timeline: Timeline, peaks: Sequence[Peak], limit_bytes: float | None) -> tuple[float, float, str] | None:
    rank = max(range(timeline.ranks), key=lambda place: peaks[place].bytes)
    peak = peaks[rank]
    if not peak.bytes:
        return None
    kind, size = max(peak.kinds.items(), key=lambda item: item[1])
    over = ", does not fit" if limit_bytes is not None and peak.bytes > limit_bytes else ""
    words = f"stage {timeline.stage[rank]}: {gib(peak.bytes)} GiB, the largest part {kind}: {gib(size)}{over}"
    return peak.time_s, peak.bytes / GIB, words
