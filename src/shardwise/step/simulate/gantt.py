"""A timeline as text: one line per stage, one letter per moment."""

import numpy as np

from shardwise.arrays import Floats
from shardwise.step.simulate.timeline import KINDS, LANES, Timeline

LETTERS = {
    "forward": "F", "backward": "B", "input gradient": "I", "weight gradient": "W", "reduce": "r", "gather": "g",
    "optimizer": "o", "other": "x",
}  # fmt: skip
IDLE = "."
GAP = " ~ "
SHOWN_LANES = ("compute", "grad", "param")
MOST_ROWS = 16
LABEL = 5
WIDTH = 80


def gantt(timeline: Timeline, width: int = WIDTH) -> list[str]:
    """Lines of at most `width` columns: what fills most of each moment, idle where nothing fills half of it.

    A step too long to show every forward is shown at its start and its end, with a gap between.
    """
    windows = _windows(timeline, width - LABEL - 1)
    ranks = range(timeline.ranks)
    shown = list(ranks) if len(ranks) <= MOST_ROWS else [*ranks[: MOST_ROWS // 2], *ranks[-MOST_ROWS // 2 :]]
    lines = []
    for place, rank in enumerate(shown):
        if place and rank > shown[place - 1] + 1:
            lines.append(f"{'...':>{LABEL}}")
        # a second class of pipelines (one with a straggler) shows the same stages again, marked
        mark = "*" if rank >= timeline.stage.max() + 1 else ""
        lines.append(
            f"{f'{timeline.stage[rank]}{mark}':>{LABEL}} " + GAP.join(_line(timeline, rank, edges) for edges in windows)
        )
    return lines


def legend(timeline: Timeline, width: int = WIDTH) -> list[str]:
    present = {KINDS[int(kind)] for kind in np.unique(timeline.spans.kind)}
    lines = [""]
    for entry in [*(f"{letter} {kind}" for kind, letter in LETTERS.items() if kind in present), f"{IDLE} idle"]:
        if len(lines[-1]) + 2 + len(entry) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + entry
    return lines


def _windows(timeline: Timeline, columns: int) -> list[Floats]:
    """Edges of the columns: the whole step, or its two ends at one forward a column."""
    spans = timeline.spans
    forwards = spans.piped & (spans.kind == KINDS.index("forward"))
    longest = float((spans.end_s - spans.start_s)[forwards].max(initial=0.0))
    if longest * columns >= timeline.step_s:
        return [np.asarray(np.linspace(0.0, timeline.step_s, columns + 1), dtype=np.float64)]
    half = (columns - len(GAP)) // 2
    offsets = np.arange(half + 1, dtype=np.float64) * longest
    return [offsets, timeline.step_s - offsets[::-1]]


def _line(timeline: Timeline, rank: int, edges: Floats) -> str:
    spans = timeline.spans
    columns = len(edges) - 1
    mine = spans.rank == rank
    lanes = np.isin(spans.lane, [LANES.index(lane) for lane in SHOWN_LANES])
    filled = np.zeros((len(LETTERS) + 1, columns))
    filled[-1] = 0.5 * np.diff(edges)
    for row, kind in enumerate(LETTERS):
        chosen = mine & lanes & (spans.kind == KINDS.index(kind))
        if chosen.any():
            filled[row] = _overlap(spans.start_s[chosen], spans.end_s[chosen], edges)
    compute = [list(LETTERS).index(kind) for kind in ("reduce", "gather")]
    # communication is drawn only where no compute is
    busy = filled[:-1].sum(axis=0) - filled[compute].sum(axis=0)
    filled[compute] *= busy <= filled[-1]
    letters = [*LETTERS.values(), IDLE]
    return "".join(letters[i] for i in np.argmax(filled, axis=0))


def _overlap(starts: Floats, ends: Floats, edges: Floats) -> Floats:
    """Seconds that spans cover between neighbouring edges."""

    def before(moments: Floats) -> Floats:
        ordered = np.sort(moments)
        count = np.searchsorted(ordered, edges, side="right")
        return np.asarray(edges * count - np.concatenate([[0.0], np.cumsum(ordered)])[count])

    return np.diff(before(starts) - before(ends))
