"""TensorBoard's event files: records of (time, step, tag, number), read without TensorBoard.

Of a record's message: 1 wall time, 2 step, 5 summary; of a summary: 1 value; of a value: 1 tag, 2 number. A record that
is cut off, as in a run still going on, ends the file; one whose checksum is wrong is left out, and its place stated.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from shardwise.event_record import masked
from shardwise.measured.diagnose.logged import MOST_STEPS, RunLog
from shardwise.programs.importers.step_table import MOST_COLUMNS, log_of_rows

MOST_RECORDS = 5_000_000
LONGEST_RECORD = 64 * 2**20
CHECKED_BYTES = 4096
"""of a record whose checksum is compared though it holds no scalar; larger ones are images and the like"""
FIXED = {1: 8, 5: 4}
"""bytes of a field by its wire type"""
VERSION = b"brain.Event:"


def is_event_file(head: bytes) -> bool:
    """The first record states the version of the form."""
    return VERSION in head[:64]


@dataclass
class _Event:
    wall_s: float | None = None
    step: int = 0
    scalars: list[tuple[str, float]] = field(default_factory=list)


def parse_events(raw: bytes, name: str = "") -> RunLog | None:
    rows: dict[int, dict[str, Any]] = {}
    damaged: list[str] = []
    for place, (at, record) in enumerate(_records(raw, damaged)):
        event = _event(record)
        if event is None or ((event.scalars or len(record) <= CHECKED_BYTES) and not _is_whole(raw, at, record)):
            damaged.append(f"record {place} at byte {at}")
        elif event.scalars and (event.step in rows or len(rows) < MOST_STEPS):
            rows.setdefault(event.step, {"step": event.step, "wall time": event.wall_s}).update(event.scalars)
    log = log_of_rows((rows[step] for step in sorted(rows)), "TensorBoard")
    if damaged and log is None:
        raise ValueError(f"run: {name} is damaged: {damaged[0]}, and no step is left; write a whole file")
    more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    return replace(log, damaged=f"left out as damaged: {damaged[0]}{more}") if log and damaged else log


def _event(record: bytes) -> _Event | None:
    """None for a message that is not one."""
    event = _Event()
    try:
        for number, value in _fields(record):
            if number == 1:
                event.wall_s = _double(value)
            elif number == 2 and isinstance(value, int):
                event.step = value
            elif number == 5 and isinstance(value, bytes):
                event.scalars += islice(_scalars(value), MOST_COLUMNS - len(event.scalars))
    except (ValueError, IndexError):
        return None
    return event


def _is_whole(raw: bytes, at: int, record: bytes) -> bool:
    (checksum,) = struct.unpack_from("<I", raw, at + 12 + len(record))
    return bool(checksum == masked(record))


def _records(raw: bytes, damaged: list[str]) -> Iterator[tuple[int, bytes]]:
    """With their places. Behind a length that is wrong nothing can be found any more."""
    at = 0
    for place in range(MOST_RECORDS):
        if at + 12 > len(raw):
            return
        length, checksum = struct.unpack_from("<QI", raw, at)
        if checksum != masked(raw[at : at + 8]) or length > LONGEST_RECORD:
            damaged.append(f"record {place} at byte {at}, with all behind it")
            return
        if at + 16 + length > len(raw):
            return
        yield at, raw[at + 12 : at + 12 + length]
        at += 16 + length


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Of any protobuf message: (number, value)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if key & 7 == 2:
            length, at = _varint(data, at)
        elif key & 7 in FIXED:
            length = FIXED[key & 7]
        else:
            raise ValueError("no protobuf")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("no protobuf")


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        inside = dict(_fields(value))
        tag, told = inside.get(1), inside.get(2)
        if isinstance(tag, bytes) and isinstance(told, bytes) and len(told) == 4:
            yield tag.decode("utf-8", errors="replace"), struct.unpack("<f", told)[0]


def _double(value: int | bytes) -> float | None:
    return struct.unpack("<d", value)[0] if isinstance(value, bytes) and len(value) == 8 else None
