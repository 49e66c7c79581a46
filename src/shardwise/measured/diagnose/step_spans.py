"""One measured step as columns, for whoever draws it next to the predicted one: `why --spans --json`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.arrays import Floats
from shardwise.measured.diagnose.device_trace import SPAN_KINDS, RankTrace

MOST_SPANS = 60_000
MOST_RANKS = 64
FINEST = 20_000
"""parts of a step: of more spans, those of a kind that lie closer than one are drawn as one"""


class SpanRow(Struct, frozen=True, kw_only=True):
    name: str


class StepSpans(Struct, frozen=True, kw_only=True):
    """Kernels of one step; `rank`, `kind`, `start_s` and `end_s` are columns of one table."""

    step_s: float
    kinds: Sequence[str]
    rows: Sequence[SpanRow]
    """ranks that are shown"""
    ranks: int
    joined: bool
    """whether kernels of a kind that lie close are one"""
    rank: Sequence[int]
    kind: Sequence[int]
    start_s: Sequence[float]
    end_s: Sequence[float]


def step_spans(traces: Sequence[RankTrace], steps: int | None) -> StepSpans:
    """The first step of each rank that is whole, from its beginning."""
    shown = traces[:MOST_RANKS]
    windows = [trace.window(steps) for trace in shown]
    length = max(((end - begin) / count for begin, end, count in windows), default=0.0)
    found = [_in_step(trace, begin, length) for trace, (begin, _, _) in zip(shown, windows, strict=True)]
    joined = sum(len(start) for start, _, _ in found) > MOST_SPANS
    if joined:
        found = [_joined(*each, length / FINEST) for each in found]
    return StepSpans(
        step_s=length, kinds=SPAN_KINDS, rows=[SpanRow(name=trace.called) for trace in shown],
        ranks=len(traces), joined=joined,
        rank=np.repeat(np.arange(len(found)), [len(start) for start, _, _ in found]).tolist(),
        kind=_column([kind for _, _, kind in found]),
        start_s=_column([np.round(start, 9) for start, _, _ in found]),
        end_s=_column([np.round(end, 9) for _, end, _ in found]),
    )  # fmt: skip


def _column(parts: list[Any]) -> list[Any]:
    found: list[Any] = np.concatenate(parts).tolist() if parts else []
    return found


def _in_step(trace: RankTrace, begin: float, length: float) -> tuple[Floats, Floats, NDArray[np.int64]]:
    kinds = np.array([SPAN_KINDS.index(name.kind) for name in trace.names] or [0])
    inside = (trace.end_s > begin) & (trace.start_s < begin + length)
    start = np.maximum(trace.start_s[inside] - begin, 0.0)
    end = np.minimum(trace.end_s[inside] - begin, length)
    return start, end, kinds[trace.what[inside]]


def _joined(
    start: Floats, end: Floats, kind: NDArray[np.int64], apart: float
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Those of a kind with less than `apart` between them, as one."""
    parts = []
    for each in np.unique(kind):
        order = np.argsort(start[kind == each], kind="stable")
        begins, ends = start[kind == each][order], end[kind == each][order]
        until = np.maximum.accumulate(ends)
        first = np.flatnonzero(np.concatenate([[True], begins[1:] - until[:-1] > apart]))
        last = np.concatenate([first[1:] - 1, [len(begins) - 1]])
        parts.append((begins[first], until[last], np.full(len(first), each)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]
