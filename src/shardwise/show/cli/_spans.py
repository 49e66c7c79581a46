"""Every task of a simulated step as columns of JSON, for whoever draws it: `simulate --spans --json`."""

from typing import Any

import numpy as np

from shardwise.report.timeline_figure import timeline_chart
from shardwise.step.simulate import Timeline
from shardwise.step.simulate.timeline import KINDS, LANES

MOST_LEVELS = 2000
"""changes of memory told of a class; of more, the highest of each part of the step"""


def spans_data(timeline: Timeline, limit_bytes: float) -> dict[str, Any]:
    """Rows and spans as the figure has them: a backward begins where its recompute ends."""
    chart = timeline_chart(timeline, title="", limit_bytes=limit_bytes)
    spans = chart.spans
    return {
        "kinds": KINDS, "lanes": LANES, "limit_bytes": limit_bytes,
        "rows": [{"name": row.name, "stage": int(stage), "gpus": int(gpus), "busy_share": float(busy),
                  "peak_bytes": peak.bytes}
                 for row, stage, gpus, busy, peak in zip(chart.rows, timeline.stage, timeline.gpus,
                                                         timeline.busy_share(), timeline.peaks(), strict=True)],
        "rank": spans.row.tolist(), "lane": spans.lane.tolist(), "kind": spans.kind.tolist(),
        "micro_batch": timeline.spans.micro_batch.tolist(), "chunk": timeline.spans.chunk.tolist(),
        "start_s": _rounded(spans.start), "end_s": _rounded(spans.end),
        "memory": [_levels(timeline, rank) for rank in range(timeline.ranks)],
    }  # fmt: skip


def _levels(timeline: Timeline, rank: int) -> dict[str, list[float]]:
    times, levels = timeline.levels(rank)
    total = levels.sum(axis=1)
    if len(times) > MOST_LEVELS:
        edges = np.linspace(0, len(times), MOST_LEVELS + 1).astype(int)[:-1]
        times, total = times[edges], np.maximum.reduceat(total, edges)
    return {"time_s": _rounded(times), "bytes": [float(round(size)) for size in total]}


def _rounded(times: Any) -> list[float]:
    """To the nanosecond: shorter than any task, and half the bytes."""
    found: list[float] = np.round(times, 9).tolist()
    return found
