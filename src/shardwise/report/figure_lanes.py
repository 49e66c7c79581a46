"""Spans of one lane as SVG strokes: wide ones each by itself, narrow ones as their share of a few pixels' time."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shardwise.simulate.timeline import KINDS, LANES, Floats, Ints, Spans, Timeline

COLOURS = {
    "forward": "#0072b2", "backward": "#e69f00", "input gradient": "#e69f00", "weight gradient": "#009e73",
    "recompute": "#56b4e9", "optimizer": "#332288", "other": "#a9adb3", "send": "#5b6068", "collective": "#cc79a7",
    "reduce": "#d55e00", "gather": "#882255", "copy": "#999933",
}  # fmt: skip
"""the colours of Okabe and Ito, and of Tol's muted set where those run out: apart for every kind of colour vision"""
NARROW_PX = 0.5
BLURRED_PX = 3.0
"""where most pieces are less than two thirds of this their colours would mix: they are narrow too"""
SEPARATED_PX = 3.0
"""spans at least this wide end a little early, so that equal neighbours can be told apart"""
MOST_STROKES = 30_000
"""of wide spans; more are narrow"""
MOST_COLUMNS = 50_000
"""of shares; both bounds keep the file below a megabyte and a half"""
LEAST_SHARE_PX = 1.0
"""what is there at all can be seen"""
COMPUTE = LANES.index("compute")
RECOMPUTE = KINDS.index("recompute")
REPEATING = [KINDS.index(kind) for kind in ("backward", "input gradient")]


@dataclass(frozen=True)
class Drawn:
    """Spans in pixels."""

    rank: Ints
    lane: Ints
    kind: Ints
    micro_batch: Ints
    left: Floats
    width: Floats
    narrow_px: float
    column_px: float
    """narrow spans are added up over so many pixels"""
    columns: int

    def where(self, chosen: NDArray[np.bool_]) -> "Drawn":
        names = ("rank", "lane", "kind", "micro_batch", "left", "width")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    @property
    def narrow(self) -> NDArray[np.bool_]:
        return np.asarray(self.width < self.narrow_px)


def drawn(timeline: Timeline, pixels: float) -> Drawn:
    spans = timeline.spans
    scale = pixels / timeline.step_s
    left = np.clip(_starts(spans) * scale, 0.0, pixels)
    width = np.clip(spans.end_s * scale, 0.0, pixels) - left
    pieces = width[spans.piped]
    narrow = BLURRED_PX if len(pieces) and np.median(pieces) < BLURRED_PX * 2 / 3 else NARROW_PX
    while (width >= narrow).sum() > MOST_STROKES:
        narrow *= 2
    small = width < narrow
    kinds = len(np.unique((spans.rank[small] * len(LANES) + spans.lane[small]) * len(KINDS) + spans.kind[small]))
    columns = max(int(pixels / max(2.0, 2 * narrow, kinds * pixels / MOST_COLUMNS)), 1)
    return Drawn(
        spans.rank, spans.lane, spans.kind, spans.micro_batch, left, width, narrow, pixels / columns, columns
    )  # fmt: skip


def _starts(spans: Spans) -> Floats:
    """A backward is drawn from the end of its recompute on, so that neither covers the other."""
    start = spans.start_s.copy()
    again = np.flatnonzero(spans.kind == RECOMPUTE)
    parents = np.flatnonzero(np.isin(spans.kind, REPEATING) & (spans.lane == COMPUTE))
    place = dict(zip(_keys(spans, parents), parents.tolist(), strict=True)) if len(again) else {}
    for key, row in zip(_keys(spans, again), again.tolist(), strict=True):
        if key in place:
            start[place[key]] = spans.end_s[row]
    return start


def _keys(spans: Spans, rows: Ints) -> list[tuple[float, ...]]:
    columns = (spans.rank[rows], spans.micro_batch[rows], spans.chunk[rows], spans.start_s[rows])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def lane_paths(spans: Drawn, top: float, height: float, name: str) -> list[str]:
    """One lane of one rank."""
    narrow = spans.narrow
    return [*_shares(spans.where(narrow), top, height, name), *_pieces(spans.where(~narrow), top, height, name)]


def _pieces(spans: Drawn, top: float, height: float, name: str) -> list[str]:
    paths = []
    shown = np.where(spans.width >= SEPARATED_PX, spans.width - 0.7, spans.width)
    middle = short(top + height / 2)
    for kind in np.unique(spans.kind).tolist():
        rows = spans.kind == kind
        pairs = zip(spans.left[rows].tolist(), shown[rows].tolist(), strict=True)
        lines = "".join(f"M{short(x)} {middle}h{short(w)}" for x, w in pairs)
        paths.append(
            f'<path d="{lines}" stroke="{COLOURS[KINDS[kind]]}" stroke-width="{short(height)}">'
            f"<title>{name}: {KINDS[kind]}</title></path>"
        )
    return paths


def _shares(spans: Drawn, top: float, height: float, name: str) -> list[str]:
    """In each column every kind is as high as its share of the time; idle time stays empty."""
    if not len(spans.rank):
        return []
    kinds = np.unique(spans.kind)
    filled = np.stack([_filled(spans.where(spans.kind == kind)) for kind in kinds])
    # collectives of one lane may run together
    filled *= height / np.maximum(filled.sum(axis=0), spans.column_px)
    filled = np.where(filled > 0, np.maximum(filled, min(LEAST_SHARE_PX, height / len(kinds))), 0.0)
    # steps of half a pixel: neighbours that look alike become one
    lower = top + height - np.round(2 * (np.cumsum(filled, axis=0) - filled)) / 2
    upper = lower - np.round(2 * filled) / 2
    return [
        f'<path d="{_area(high, low, spans.column_px)}" fill="{COLOURS[KINDS[kind]]}">'
        f"<title>{name}: {KINDS[kind]}, share of the time</title></path>"
        for kind, high, low in zip(kinds.tolist(), np.maximum(upper, top), lower, strict=True)
    ]


def _filled(spans: Drawn) -> Floats:
    """Pixels covered in each column; a narrow span touches two at most."""
    column, count = spans.column_px, spans.columns
    first = np.minimum(spans.left / column, count - 1).astype(np.int64)
    inside = np.minimum(spans.width, (first + 1) * column - spans.left)
    here = np.bincount(first, weights=inside, minlength=count)
    there = np.bincount(first + 1, weights=spans.width - inside, minlength=count + 1)
    return np.asarray(here + there[:count])


def _area(high: Floats, low: Floats, column: float) -> str:
    """Rectangles between two heights, one for each run of equal columns."""
    begins = np.flatnonzero((np.diff(high, prepend=np.nan) != 0) | (np.diff(low, prepend=np.nan) != 0))
    ends = np.append(begins[1:], len(high))
    rows = zip((begins * column).tolist(), ((ends - begins) * column).tolist(), high[begins].tolist(),
               (low - high)[begins].tolist(), strict=True)  # fmt: skip
    # a hair wider than the columns: no light seam between neighbours
    return "".join(f"M{short(x)} {short(y)}h{w + 0.1:.1f}v{short(h)}H{short(x)}z" for x, w, y, h in rows if h > 0)


def short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
