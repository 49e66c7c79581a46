"""A traced and priced step for Perfetto: a thread for each stream, memory by kind as a counter."""

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from shardwise.trace.events import KINDS, Capture
from shardwise.trace.overlap import KERNELS, Playback

MICRO = 1e6


def write_perfetto(captured: Capture, played: Playback, path: Path) -> int:
    """Writes FILE.json whole or not at all; returns the number of events."""
    if path.suffix != ".json":
        raise ValueError(f"perfetto: {path.name!r}; write a name that ends in .json")
    events = [*_names(captured, played), *_spans(played), *_memory(captured, played)]
    title = f"rank {captured.rank} of {captured.world}"
    document = {"displayTimeUnit": "ms", "otherData": {"title": title}, "traceEvents": events}
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".trace-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(document))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return len(events)


def _lanes(played: Playback) -> dict[str, int]:
    others = dict.fromkeys(span.lane for span in played.spans if span.lane != KERNELS)
    return {lane: place for place, lane in enumerate([KERNELS, *others])}


def _names(captured: Capture, played: Playback) -> list[dict[str, Any]]:
    rank = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"rank {captured.rank} of {captured.world}"}}
    lanes = _lanes(played)
    return [rank, *({"ph": "M", "name": "thread_name", "pid": 0, "tid": place, "args": {"name": lane}}
                    for lane, place in lanes.items())]  # fmt: skip


def _spans(played: Playback) -> list[dict[str, Any]]:
    lanes = _lanes(played)
    return [
        {"ph": "X", "name": span.name, "cat": span.phase, "pid": 0, "tid": lanes[span.lane], "ts": span.start_s * MICRO,
         "dur": (span.end_s - span.start_s) * MICRO, "args": {"phase": span.phase, "bytes": span.bytes}}
        for span in played.spans
    ]  # fmt: skip


def _memory(captured: Capture, played: Playback) -> list[dict[str, Any]]:
    """A change is drawn at the start of the kernel that follows it."""
    now: Counter[str] = Counter()
    found, done = [], 0
    for span in played.spans:
        if span.lane != KERNELS or span.at == done:
            continue
        for held, change in captured.changes[done : span.at]:
            now[held.kind] += change
        done = span.at
        level = {kind: now[kind] / 2**30 for kind in KINDS}
        found.append({"ph": "C", "name": "memory GiB", "pid": 0, "ts": span.start_s * MICRO, "args": level})
    return found
