"""The one writer of trace events, the JSON that Perfetto and chrome://tracing open: who, what, from when to when."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shardwise.whole_file import OutputFile

Event = dict[str, Any]
Moment = tuple[int, int, float]
"""(process, thread, seconds)"""
MARK = b'"otherData":{"tool":"shardwise"'
MICRO = 1e6
"""the format counts in microseconds"""


def process_name(process: int, name: str) -> list[Event]:
    """Named, and shown in the order of their numbers."""
    return [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}},
    ]


def thread_name(process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}


def span(process: int, thread: int, name: str, category: str, start_s: float, end_s: float,
         told: Mapping[str, Any]) -> Event:  # fmt: skip
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, "ts": start_s * MICRO,
            "dur": (end_s - start_s) * MICRO, "args": dict(told)}  # fmt: skip


def arrow(number: int, name: str, category: str, start: Moment, end: Moment) -> list[Event]:
    """From a span to another."""
    common = {"name": name, "cat": category, "id": number}
    ends = (({"ph": "s"}, start), ({"ph": "f", "bp": "e"}, end))
    return [
        common | kind | {"pid": process, "tid": thread, "ts": moment_s * MICRO}
        for kind, (process, thread, moment_s) in ends
    ]


def counter(process: int, name: str, moment_s: float, levels: Mapping[str, float]) -> Event:
    """Levels that hold until the next event of this name."""
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": moment_s * MICRO, "args": dict(levels)}


def one_below_the_other(traces: Mapping[str, Sequence[Event]]) -> list[Event]:
    """Several traces as one: each process under its trace's name, below those of the traces before."""
    found: list[Event] = []
    processes = arrows = 0
    for title, events in traces.items():
        for event in events:
            moved = event | {"pid": event["pid"] + processes}
            if "id" in event:
                moved["id"] = event["id"] + arrows
            if event["name"] == "process_name":
                moved["args"] = {"name": f"{title}: {event['args']['name']}"}
            if event["name"] == "process_sort_index":
                moved["args"] = {"sort_index": moved["pid"]}
            found.append(moved)
        processes += 1 + max((event["pid"] for event in events), default=-1)
        arrows += 1 + max((event["id"] for event in events if "id" in event), default=-1)
    return found


def trace_file(path: Path, flag: str, overwrite: bool = False) -> OutputFile:
    """FILE.json or FILE.json.gz. `flag`: what named it, for the message where it cannot be written."""
    if not path.name.endswith((".json", ".json.gz")):
        raise ValueError(f"{flag}: {path.name!r}; write a name that ends in .json or .json.gz")
    return OutputFile(path, flag, MARK, overwrite)


def write_events(events: Sequence[Event], file: OutputFile, title: str) -> int:
    """Names first and then in the order of time; returns the number of events."""
    ordered = sorted(events, key=lambda event: event.get("ts", -1.0))
    data = msgspec.json.encode(
        {"displayTimeUnit": "ms", "otherData": {"tool": "shardwise", "title": title}, "traceEvents": ordered}
    )
    file.write(gzip.compress(data, mtime=0) if file.path.name.endswith(".gz") else data)
    return len(events)
