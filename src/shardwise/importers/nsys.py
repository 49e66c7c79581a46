"""Nsight Systems: `nsys export --type sqlite` -> what each GPU in it did. The file is opened to be read only."""

import sqlite3
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from shardwise.diagnose.device_trace import RankTrace, SpanName
from shardwise.importers._file import check_file
from shardwise.importers.device_events import SpanCollector, host_kind, is_collective, is_launch, is_step, op_of

MAGIC = b"SQLite format 3\x00"
KERNELS, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, MARKS, STRINGS = "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS", "StringIds"
LATEST = 2**62
"""nanoseconds"""
HOST_COPIES = (1, 2)
"""copyKind: to and from the host"""


def read_nsys(path: Path) -> list[RankTrace]:
    """One for each GPU."""
    check_file(path, "run", "an sqlite export of nsys")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as file:
            file.execute("PRAGMA trusted_schema=OFF")
            return _read(file, path.name)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"run: {path.name} cannot be read as an export of nsys ({error}); export it again") from None


def _read(file: sqlite3.Connection, name: str) -> list[RankTrace]:
    tables = {row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if KERNELS not in tables or STRINGS not in tables:
        raise ValueError(f"run: {name} has no table {KERNELS}; write an export of `nsys profile --trace cuda,nvtx`")
    words = {key: value for key, value in file.execute(f"SELECT id, value FROM {STRINGS}") if isinstance(value, str)}
    devices: dict[int, SpanCollector] = {}
    joins: dict[int, array[int]] = {}
    known: dict[int, SpanName] = {}
    for start, end, device, correlation, title in _rows(file, KERNELS, "deviceId", "correlationId",
                                                        "COALESCE(demangledName, shortName)"):  # fmt: skip
        span = known.get(title)
        if span is None:
            text = words.get(title, "kernel")
            kind = "comm" if is_collective(text) else "compute"
            span = known[title] = SpanName(kind=kind, name=text[:120], op=op_of(text) if kind == "comm" else "")
        spans = devices.setdefault(device, SpanCollector())
        spans.add(start, end, spans.index_of(span))
        joins.setdefault(device, array("q")).append(correlation)
    if not devices:
        raise ValueError(f"run: {name} has no kernel; profile with `nsys profile --trace cuda,nvtx`")
    if COPIES in tables:
        for start, end, device, correlation, how in _rows(file, COPIES, "deviceId", "correlationId", "copyKind"):
            if device in devices:
                kind = "copy" if how in HOST_COPIES else "compute"
                devices[device].add(start, end, devices[device].index_of(SpanName(kind=kind, name="memcpy")))
                joins[device].append(correlation)
    _host(file, tables, words, devices, joins)
    count = len(devices)
    return [
        spans.trace(name if count == 1 else f"{name} GPU {device}", rank=None, world=None, device="")
        for device, spans in sorted(devices.items())
    ]  # fmt: skip


def _rows(file: sqlite3.Connection, table: str, *columns: str) -> Iterator[tuple[float, float, int, int, int]]:
    """Begin and end in seconds, and whole numbers; rows of other types are left out."""
    for start, end, *others in file.execute(f"SELECT start, end, {', '.join(columns)} FROM {table}"):
        if _whole(start) and _whole(end) and 0 <= start <= end < LATEST and all(map(_whole, others)):
            yield start * 1e-9, end * 1e-9, others[0], others[1], others[2]


def _host(
    file: sqlite3.Connection, tables: set[str], words: dict[int, str], devices: dict[int, SpanCollector],
    joins: dict[int, "array[int]"],
) -> None:  # fmt: skip
    """Launches, waits and named ranges; of a file with several GPUs, all see those of the host."""
    if RUNTIME in tables:
        calls: list[tuple[int, float]] = []
        for start, end, correlation, title, _ in _rows(file, RUNTIME, "correlationId", "nameId", "0"):
            text = words.get(title, "")
            if is_launch(text):
                calls.append((correlation, start))
            elif kind := host_kind(text):
                for spans in devices.values():
                    spans.host_did(kind, start, end)
        _launched(calls, devices, joins)
    if MARKS not in tables:
        return
    for start, end, text, number in file.execute(f"SELECT start, end, text, textId FROM {MARKS} WHERE end IS NOT NULL"):
        called = text if isinstance(text, str) else words.get(number, "")
        if not _whole(start) or not _whole(end) or not 0 <= start <= end < LATEST or not called:
            continue
        doing, step = host_kind(called), is_step(called)
        for spans in devices.values():
            if step:
                spans.steps.append((start * 1e-9, end * 1e-9))
            elif doing:
                spans.host_did(doing, start * 1e-9, end * 1e-9)


def _launched(
    calls: list[tuple[int, float]], devices: dict[int, SpanCollector], joins: dict[int, "array[int]"]
) -> None:
    if not calls:
        return
    calls.sort()
    numbers, at = np.array([call[0] for call in calls]), np.array([call[1] for call in calls])
    for device, spans in devices.items():
        wanted = np.array(joins[device])
        place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        found = np.where(numbers[place] == wanted, at[place], np.nan)
        spans.launched = array("d", found.tobytes())


def _whole(value: Any) -> bool:
    return type(value) is int
