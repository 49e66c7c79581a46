"""Nsight Systems: `nsys export --type sqlite` -> what each GPU in it did.

Names and columns as in NVIDIA's reference of the export's tables; which of them a file has depends on what was traced
and on the version, so that only begin, end and the device of a kernel are needed. Numbers that join a kernel with its
launch are those of one process.
"""

import sqlite3
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardwise.measured.diagnose.device_trace import RankTrace, SpanName
from shardwise.programs.importers._file import check_file
from shardwise.programs.importers.device_events import (
    SpanCollector,
    check_spans,
    host_kind,
    is_collective,
    is_launch,
    is_step,
    op_of,
)
from shardwise.programs.importers.nsys_clocks import CLOCK_TABLES, clocks_in, gpu_names
from shardwise.programs.importers.sqlite_file import columns_of, opened_sqlite, plain_tables

MAGIC = b"SQLite format 3\x00"
KERNELS, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, SETS, GRAPHS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
MARKS, STRINGS = "NVTX_EVENTS", "StringIds"
TABLES = {KERNELS, RUNTIME, COPIES, SETS, GRAPHS, MARKS, STRINGS, *CLOCK_TABLES}
LONGEST_NAME = 1000
LATEST = 2**62
"""nanoseconds"""
HOST_COPIES = (1, 2)
"""copyKind: to and from the host"""
NAMES = ("demangledName", "shortName", "mangledName")
PROCESS = 24
"""bits of a thread's number inside its process: what lies above is the process"""
MOST_DEVICES = 4096
Owner = tuple[int, int]
"""process and its number of the GPU"""


@dataclass
class _Devices:
    spans: dict[Owner, SpanCollector] = field(default_factory=dict)
    joins: dict[Owner, "array[int]"] = field(default_factory=dict)
    count: int = 0

    def add(self, owner: Owner, start: float, end: float, span: SpanName, correlation: int) -> None:
        if owner not in self.spans and len(self.spans) >= MOST_DEVICES:
            return
        spans = self.spans.setdefault(owner, SpanCollector())
        spans.add(start, end, spans.index_of(span))
        self.count += 1
        check_spans(self.count)
        self.joins.setdefault(owner, array("q")).append(correlation)

    def of_process(self, process: int) -> Iterator[SpanCollector]:
        """Of a file that tells no processes, all see what the host did."""
        for (own, _), spans in self.spans.items():
            if own == process or not own or not process:
                yield spans


def read_nsys(path: Path) -> list[RankTrace]:
    """One for each process and GPU."""
    check_file(path, "run", "an sqlite export of nsys")
    try:
        with opened_sqlite(path) as file:
            return _read(file, plain_tables(file, TABLES), path.name)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"run: {path.name} cannot be read as an export of nsys ({error}); export it again") from None


def _read(file: sqlite3.Connection, tables: set[str], name: str) -> list[RankTrace]:
    if STRINGS not in tables or not tables & {KERNELS, GRAPHS}:
        raise ValueError(f"run: {name} has no table {KERNELS}; write an export of `nsys profile --trace cuda,nvtx`")
    words = {key: value[:LONGEST_NAME] for key, value in file.execute(f"SELECT id, value FROM {STRINGS}")
             if isinstance(value, str)}  # fmt: skip
    devices = _Devices()
    if KERNELS in tables:
        _kernels(file, words, devices)
    _others(file, tables, devices)
    if not devices.spans:
        raise ValueError(f"run: {name} has no kernel; profile with `nsys profile --trace cuda,nvtx`")
    calls = _calls(file, words, devices) if RUNTIME in tables else {}
    _launched(calls, devices)
    if MARKS in tables:
        _marks(file, words, devices)
    return _traces(file, tables, name, devices)


def _kernels(file: sqlite3.Connection, words: dict[int, str], devices: _Devices) -> None:
    known: dict[int, SpanName] = {}
    named = [column for column in NAMES if column in columns_of(file, KERNELS)]
    title_of = f"COALESCE({', '.join([*named, '-1', '-1'])})"
    for start, end, owner, correlation, title in _rows(file, KERNELS, title_of):
        span = known.get(title)
        if span is None:
            text = words.get(title, "kernel")
            kind = "comm" if is_collective(text) else "compute"
            span = known[title] = SpanName(kind=kind, name=text[:120], op=op_of(text) if kind == "comm" else "")
        devices.add(owner, start, end, span, correlation)


def _others(file: sqlite3.Connection, tables: set[str], devices: _Devices) -> None:
    """Copies, memory that is set, and graphs that were traced as a whole; a copy inside a device runs as a kernel."""
    inside, outside = SpanName(kind="compute", name="memcpy"), SpanName(kind="copy", name="memcpy")
    if GRAPHS in tables:
        graph = SpanName(kind="compute", name="a CUDA graph, traced as a whole")
        for start, end, owner, correlation, _ in _rows(file, GRAPHS, "0"):
            devices.add(owner, start, end, graph, correlation)
    if COPIES in tables:
        how_of = "copyKind" if "copyKind" in columns_of(file, COPIES) else "0"
        for start, end, owner, correlation, how in _rows(file, COPIES, how_of):
            if owner in devices.spans:
                devices.add(owner, start, end, outside if how in HOST_COPIES else inside, correlation)
    if SETS in tables:
        clears = SpanName(kind="compute", name="memset")
        for start, end, owner, correlation, _ in _rows(file, SETS, "0"):
            if owner in devices.spans:
                devices.add(owner, start, end, clears, correlation)


def _rows(file: sqlite3.Connection, table: str, more: str) -> Iterator[tuple[float, float, Owner, int, int]]:
    """Begin and end in seconds, process and device, the number that joins it with its launch, and one column more; rows
    of other types are left out."""
    has = columns_of(file, table)
    device, process, thread = ("deviceId" in has), ("globalPid" in has), ("globalTid" in has)
    owner = f"COALESCE(globalPid, 0) >> {PROCESS}" if process else f"COALESCE(globalTid, 0) >> {PROCESS}"
    columns = ["start", '"end"', "deviceId" if device else "0", owner if process or thread else "0",
               "COALESCE(correlationId, -1)" if "correlationId" in has else "-1", more]  # fmt: skip
    for start, end, *others in file.execute(f"SELECT {', '.join(columns)} FROM {table}"):
        if _whole(start) and _whole(end) and 0 <= start <= end < LATEST and all(map(_whole, others)):
            yield start * 1e-9, end * 1e-9, (others[1], others[0]), others[2], others[3]


def _calls(file: sqlite3.Connection, words: dict[int, str], devices: _Devices) -> dict[int, list[tuple[int, float]]]:
    """Launches of each process; waits and allocations go to its devices."""
    found: dict[int, list[tuple[int, float]]] = {}
    for start, end, (process, _), correlation, title in _rows(file, RUNTIME, "nameId"):
        text = words.get(title, "")
        if is_launch(text):
            found.setdefault(process, []).append((correlation, start))
        elif kind := host_kind(text):
            for spans in devices.of_process(process):
                spans.host_did(kind, start, end)
    return found


def _marks(file: sqlite3.Connection, words: dict[int, str], devices: _Devices) -> None:
    """Ranges that the program named; an instant has no end."""
    has = columns_of(file, MARKS)
    texts = [column if column in has else "NULL" for column in ("text", "textId")]
    thread = f"COALESCE(globalTid, 0) >> {PROCESS}" if "globalTid" in has else "0"
    query = f'SELECT start, "end", {texts[0]}, {texts[1]}, {thread} FROM {MARKS} WHERE "end" IS NOT NULL'
    for start, end, text, number, process in file.execute(query):
        called = text if isinstance(text, str) and text else words.get(number, "")
        if not _whole(start) or not _whole(end) or not 0 <= start < end < LATEST or not called:
            continue
        doing, step = host_kind(called), is_step(called)
        for spans in devices.of_process(process) if doing or step else ():
            if step:
                spans.steps.append((start * 1e-9, end * 1e-9))
            else:
                spans.host_did(doing, start * 1e-9, end * 1e-9)


def _launched(calls: dict[int, list[tuple[int, float]]], devices: _Devices) -> None:
    every = [call for mine in calls.values() for call in mine] if any(not own for own, _ in devices.spans) else []
    for owner, spans in devices.spans.items():
        # one of the two tables may tell no processes
        mine = sorted((calls.get(owner[0]) or calls.get(0) or []) if owner[0] else every)
        if not mine:
            continue
        numbers, at = np.array([call[0] for call in mine]), np.array([call[1] for call in mine])
        wanted = np.array(devices.joins[owner])
        place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        found = np.where((numbers[place] == wanted) & (wanted >= 0), at[place], np.nan)
        spans.launched = array("d", found.tobytes())


def _traces(file: sqlite3.Connection, tables: set[str], name: str, devices: _Devices) -> list[RankTrace]:
    processes = {process for process, _ in devices.spans}
    called, clocks = gpu_names(file, tables), clocks_in(file, tables)
    alone = len({place for _, place in devices.spans}) == len(devices.spans)
    found = []
    for (process, device), spans in sorted(devices.spans.items()):
        told = [name, *([f"process {process & 0xFFFFFF}"] if len(processes) > 1 else []),
                *([f"GPU {device}"] if len(devices.spans) > len(processes) else [])]  # fmt: skip
        label = name if len(devices.spans) == 1 else " ".join(told)
        trace = spans.trace(label, rank=None, world=None, device=called.of(process & 0xFFFFFF, device))
        found.append(replace(trace, clock=clocks.get(device) if alone else None))
    return found


def _whole(value: Any) -> bool:
    return type(value) is int
