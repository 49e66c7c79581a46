"""TensorBoard's event files: records of (time, step, tag, number), read without TensorBoard.

A record: length (8 bytes), 4 bytes of checksum, the message, 4 more. Of the message: 1 wall time, 2 step, 5 summary;
of a summary: 1 value; of a value: 1 tag, 2 number. A record that is cut off, as in a run still going on, ends the file.
"""

import struct
from collections.abc import Iterator
from typing import Any

from shardwise.diagnose.logged import RunLog
from shardwise.importers.step_table import log_of_rows

MOST_RECORDS = 5_000_000
LONGEST_RECORD = 64 * 2**20
FIXED = {1: 8, 5: 4}
"""bytes of a field by its wire type"""
VERSION = b"brain.Event:"


def is_event_file(head: bytes) -> bool:
    """The first record states the version of the form."""
    return VERSION in head[:64]


def parse_events(raw: bytes) -> RunLog | None:
    rows: dict[int, dict[str, Any]] = {}
    for record in _records(raw):
        try:
            fields = list(_fields(record))
        except (ValueError, IndexError):
            continue
        wall = next((_double(value) for number, value in fields if number == 1), None)
        step = next((value for number, value in fields if number == 2 and isinstance(value, int)), 0)
        scalars = [pair for number, value in fields if number == 5 for pair in _scalars(value)]
        if scalars:
            rows.setdefault(step, {"step": step, "wall time": wall}).update(scalars)
    return log_of_rows((rows[step] for step in sorted(rows)), "TensorBoard")


def _records(raw: bytes) -> Iterator[bytes]:
    at = 0
    for _ in range(MOST_RECORDS):
        if at + 12 > len(raw):
            return
        (length,) = struct.unpack_from("<Q", raw, at)
        if length > LONGEST_RECORD or at + 16 + length > len(raw):
            return
        yield raw[at + 12 : at + 12 + length]
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


def _scalars(summary: int | bytes) -> Iterator[tuple[str, float]]:
    if not isinstance(summary, bytes):
        return
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        inside = dict(_fields(value))
        tag, told = inside.get(1), inside.get(2)
        if isinstance(tag, bytes) and isinstance(told, bytes) and len(told) == 4:
            yield tag.decode("utf-8", errors="replace"), struct.unpack("<f", told)[0]


def _double(value: int | bytes) -> float | None:
    return struct.unpack("<d", value)[0] if isinstance(value, bytes) and len(value) == 8 else None
