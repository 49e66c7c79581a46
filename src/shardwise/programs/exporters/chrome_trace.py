"""A timeline as a trace that Perfetto and chrome://tracing open: a process per rank, a thread per stream.

Arrows lead from each send to the work that waits for it; counters show memory by kind and what the links carry.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from shardwise.programs.exporters.trace_events import (
    Event,
    arrow,
    counter,
    one_below_the_other,
    process_name,
    span,
    thread_name,
    write_events,
)
from shardwise.step.simulate.timeline import KINDS, LANES, MEMORY, Timeline
from shardwise.whole_file import OutputFile

LINK_LANES = ("pp", "grad", "param")
CLOSE = 1e-9
"""times that differ by this share of the step are the same moment"""


def write_overlay(timelines: Mapping[str, Timeline], file: OutputFile) -> int:
    """Several timelines in one file, one below the other, each rank under its timeline's name."""
    traces = {title: trace_events(timeline) for title, timeline in timelines.items()}
    return write_events(one_below_the_other(traces), file, " and ".join(timelines))


def trace_events(timeline: Timeline) -> list[Event]:
    return [*_names(timeline), *_spans(timeline), *_arrows(timeline), *_memory(timeline), *_links(timeline)]


def _names(timeline: Timeline) -> Iterable[Event]:
    for rank, (stage, gpus) in enumerate(zip(timeline.stage.tolist(), timeline.gpus.tolist(), strict=True)):
        yield from process_name(rank, f"stage {stage} ({gpus:,} GPU{'s' if gpus > 1 else ''})")
    used = np.unique(np.stack([timeline.spans.rank, timeline.spans.lane], axis=1), axis=0)
    for rank, lane in used.tolist():
        yield thread_name(rank, lane, LANES[lane])


def _spans(timeline: Timeline) -> Iterable[Event]:
    spans = timeline.spans
    columns = (spans.rank, spans.lane, spans.kind, spans.micro_batch, spans.chunk, spans.start_s, spans.end_s,
               spans.bytes)  # fmt: skip
    for rank, lane, kind, batch, chunk, start, end, size in zip(*(c.tolist() for c in columns), strict=True):
        name = KINDS[kind] if KINDS[kind] != "collective" else f"{LANES[lane]} collective"
        told = {"micro_batch": batch, "chunk": chunk, "bytes": size}
        shown = {key: value for key, value in told.items() if value not in (-1, 0.0)}
        yield span(rank, lane, f"{name} {batch}" if batch >= 0 else name, LANES[lane], start, end, shown)


def _arrows(timeline: Timeline) -> Iterable[Event]:
    """From the end of a send to the first piece of the same micro-batch that starts behind it on the other rank."""
    spans = timeline.spans
    piped = np.flatnonzero(spans.piped)
    piped = piped[np.argsort(spans.start_s[piped], kind="stable")]
    waiting: dict[tuple[int, int], list[int]] = {}
    for row in piped.tolist():
        waiting.setdefault((int(spans.rank[row]), int(spans.micro_batch[row])), []).append(row)
    starts = {key: spans.start_s[rows] for key, rows in waiting.items()}
    for number, send in enumerate(np.flatnonzero(spans.peer >= 0).tolist()):
        key = (int(spans.peer[send]), int(spans.micro_batch[send]))
        if key not in starts:
            continue
        place = int(np.searchsorted(starts[key], spans.end_s[send] - CLOSE * timeline.step_s))
        if place == len(starts[key]):
            continue
        target = waiting[key][place]
        yield from arrow(
            number, "send", "pp", (int(spans.rank[send]), int(spans.lane[send]), float(spans.start_s[send])),
            (key[0], int(spans.lane[target]), float(spans.start_s[target])),
        )  # fmt: skip


def _memory(timeline: Timeline) -> Iterable[Event]:
    for rank in range(timeline.ranks):
        times, levels = timeline.levels(rank)
        # of the changes at one moment only the last is a state
        last = np.append(np.diff(times) > 0, True)
        for moment, level in zip(times[last].tolist(), (levels[last] / 2**30).tolist(), strict=True):
            yield counter(rank, "memory GiB", moment, dict(zip(MEMORY, level, strict=True)))


def _links(timeline: Timeline) -> Iterable[Event]:
    spans = timeline.spans
    carried = (spans.bytes > 0) & (spans.end_s > spans.start_s)
    for lane in LINK_LANES:
        for rank in range(timeline.ranks):
            rows = np.flatnonzero(carried & spans.of(lane) & (spans.rank == rank))
            rate = spans.bytes[rows] / (spans.end_s[rows] - spans.start_s[rows]) / 1e9
            moments = np.concatenate([spans.start_s[rows], spans.end_s[rows]])
            order = np.argsort(moments, kind="stable")
            level = np.maximum(np.cumsum(np.concatenate([rate, -rate])[order]), 0.0)
            for moment, value in zip(moments[order].tolist(), level.tolist(), strict=True):
                yield counter(rank, f"{lane} link GB/s", moment, {"GB/s": value})
