"""A timeline as a trace that Perfetto and chrome://tracing open: a process per rank, a thread per stream.

Arrows lead from each send to the work that waits for it; counters show memory by kind and what the links carry.
"""

import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shardwise.simulate.timeline import KINDS, LANES, MEMORY, Timeline

Event = dict[str, Any]
MICRO = 1e6
LINK_LANES = ("pp", "grad", "param")
CLOSE = 1e-9
"""times that differ by this share of the step are the same moment"""


def write_trace(timeline: Timeline, path: Path, *, title: str = "training step") -> int:
    """Writes FILE.json or FILE.json.gz; returns the number of events."""
    return _write(trace_events(timeline), path, title)


def _write(events: list[Event], path: Path, title: str) -> int:
    if not path.name.endswith((".json", ".json.gz")):
        raise ValueError(f"trace: {path.name!r}; write a name that ends in .json or .json.gz")
    document = {"displayTimeUnit": "ms", "otherData": {"title": title}, "traceEvents": events}
    data = msgspec.json.encode(document)
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    return len(events)


def write_overlay(timelines: Mapping[str, Timeline], path: Path) -> int:
    """Several timelines in one file, one below the other, each rank under its timeline's name."""
    events: list[Event] = []
    ranks = arrows = 0
    for title, timeline in timelines.items():
        for event in trace_events(timeline):
            event["pid"] += ranks
            if "id" in event:
                event["id"] += arrows
            if event["name"] == "process_name":
                event["args"] = {"name": f"{title}: {event['args']['name']}"}
            if event["name"] == "process_sort_index":
                event["args"] = {"sort_index": event["pid"]}
            events.append(event)
        ranks, arrows = ranks + timeline.ranks, arrows + len(timeline.spans)
    return _write(events, path, " and ".join(timelines))


def trace_events(timeline: Timeline) -> list[Event]:
    """Names first, then everything in the order of time."""
    timed = [*_spans(timeline), *_arrows(timeline), *_memory(timeline), *_links(timeline)]
    return [*_names(timeline), *sorted(timed, key=lambda event: event["ts"])]


def _names(timeline: Timeline) -> Iterable[Event]:
    for rank, (stage, gpus) in enumerate(zip(timeline.stage.tolist(), timeline.gpus.tolist(), strict=True)):
        name = f"stage {stage} ({gpus:,} GPU{'s' if gpus > 1 else ''})"
        yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
    used = np.unique(np.stack([timeline.spans.rank, timeline.spans.lane], axis=1), axis=0)
    for rank, lane in used.tolist():
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": lane, "args": {"name": LANES[lane]}}


def _spans(timeline: Timeline) -> Iterable[Event]:
    spans = timeline.spans
    columns = (spans.rank, spans.lane, spans.kind, spans.micro_batch, spans.chunk, spans.start_s * MICRO,
               (spans.end_s - spans.start_s) * MICRO, spans.bytes)  # fmt: skip
    for rank, lane, kind, batch, chunk, start, length, size in zip(*(c.tolist() for c in columns), strict=True):
        name = KINDS[kind] if KINDS[kind] != "collective" else f"{LANES[lane]} collective"
        told = {"micro_batch": batch, "chunk": chunk, "bytes": size}
        yield {
            "ph": "X", "name": f"{name} {batch}" if batch >= 0 else name, "cat": LANES[lane], "pid": rank, "tid": lane,
            "ts": start, "dur": length, "args": {key: value for key, value in told.items() if value not in (-1, 0.0)},
        }  # fmt: skip


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
        common = {"name": "send", "cat": "pp", "id": number}
        yield common | {"ph": "s", "pid": int(spans.rank[send]), "tid": int(spans.lane[send]),
                        "ts": float(spans.start_s[send]) * MICRO}  # fmt: skip
        yield common | {"ph": "f", "bp": "e", "pid": key[0], "tid": int(spans.lane[target]),
                        "ts": float(spans.start_s[target]) * MICRO}  # fmt: skip


def _memory(timeline: Timeline) -> Iterable[Event]:
    for rank in range(timeline.ranks):
        times, levels = timeline.levels(rank)
        # of the changes at one moment only the last is a state
        last = np.append(np.diff(times) > 0, True)
        for moment, level in zip(times[last].tolist(), (levels[last] / 2**30).tolist(), strict=True):
            yield {"ph": "C", "name": "memory GiB", "pid": rank, "tid": 0, "ts": moment * MICRO,
                   "args": dict(zip(MEMORY, level, strict=True))}  # fmt: skip


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
                yield {"ph": "C", "name": f"{lane} link GB/s", "pid": rank, "tid": 0, "ts": moment * MICRO,
                       "args": {"GB/s": value}}  # fmt: skip
