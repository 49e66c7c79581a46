"""Spans of one lane as strokes: wide ones each by itself, narrow ones as their share of a few pixels' time."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.report.charts.drawing import Drawing, short

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


@dataclass(frozen=True)
class LaneSpans:
    """One row per span; `row`, `lane` and `kind` are places in the chart's lists."""

    row: Ints
    lane: Ints
    kind: Ints
    number: Ints
    """written on the span where there is room; negative: none"""
    start: Floats
    end: Floats
    """on the time axis"""
    piece: NDArray[np.bool_]
    """of those whose width decides whether spans are drawn one by one"""


@dataclass(frozen=True)
class LanePixels:
    row: Ints
    lane: Ints
    kind: Ints
    number: Ints
    left: Floats
    width: Floats
    narrow_px: float
    column_px: float
    """narrow spans are added up over so many pixels"""
    columns: int

    def where(self, chosen: NDArray[np.bool_]) -> "LanePixels":
        names = ("row", "lane", "kind", "number", "left", "width")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    @property
    def narrow(self) -> NDArray[np.bool_]:
        return np.asarray(self.width < self.narrow_px)


def lane_pixels(spans: LaneSpans, whole: float, pixels: float) -> LanePixels:
    """`whole`: length of the time axis, drawn over so many pixels."""
    scale = pixels / whole
    left = np.clip(spans.start * scale, 0.0, pixels)
    width = np.clip(spans.end * scale, 0.0, pixels) - left
    pieces = width[spans.piece]
    narrow = BLURRED_PX if len(pieces) and np.median(pieces) < BLURRED_PX * 2 / 3 else NARROW_PX
    while (width >= narrow).sum() > MOST_STROKES:
        narrow *= 2
    small = width < narrow
    kinds = len(np.unique(np.stack([spans.row[small], spans.lane[small], spans.kind[small]]), axis=1).T)
    columns = max(int(pixels / max(2.0, 2 * narrow, kinds * pixels / MOST_COLUMNS)), 1)
    return LanePixels(
        spans.row, spans.lane, spans.kind, spans.number, left, width, narrow, pixels / columns, columns
    )  # fmt: skip


def draw_lane(
    drawing: Drawing, spans: LanePixels, top: float, height: float, name: str, kinds: tuple[tuple[str, str], ...]
) -> None:
    """One lane of one row; `kinds`: (name, colour) of each."""
    narrow = spans.narrow
    _shares(drawing, spans.where(narrow), top, height, name, kinds)
    _pieces(drawing, spans.where(~narrow), top, height, name, kinds)


def _pieces(drawing: Drawing, spans: LanePixels, top: float, height: float, name: str,
            kinds: tuple[tuple[str, str], ...]) -> None:  # fmt: skip
    shown = np.where(spans.width >= SEPARATED_PX, spans.width - 0.7, spans.width)
    middle = short(top + height / 2)
    for kind in np.unique(spans.kind).tolist():
        rows = spans.kind == kind
        pairs = zip(spans.left[rows].tolist(), shown[rows].tolist(), strict=True)
        way = "".join(f"M{short(x)} {middle}h{short(w)}" for x, w in pairs)
        told, colour = kinds[kind]
        drawing.path(way, stroke=colour, width=height, tip=f"{name}: {told}")


def _shares(drawing: Drawing, spans: LanePixels, top: float, height: float, name: str,
            kinds: tuple[tuple[str, str], ...]) -> None:  # fmt: skip
    """In each column every kind is as high as its share of the time; idle time stays empty."""
    if not len(spans.row):
        return
    present = np.unique(spans.kind)
    filled = np.stack([_filled(spans.where(spans.kind == kind)) for kind in present])
    # spans of one lane may run together
    filled *= height / np.maximum(filled.sum(axis=0), spans.column_px)
    filled = np.where(filled > 0, np.maximum(filled, min(LEAST_SHARE_PX, height / len(present))), 0.0)
    # steps of half a pixel: neighbours that look alike become one
    lower = top + height - np.round(2 * (np.cumsum(filled, axis=0) - filled)) / 2
    upper = lower - np.round(2 * filled) / 2
    for kind, high, low in zip(present.tolist(), np.maximum(upper, top), lower, strict=True):
        told, colour = kinds[kind]
        drawing.path(_area(high, low, spans.column_px), fill=colour, tip=f"{name}: {told}, share of the time")


def _filled(spans: LanePixels) -> Floats:
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
