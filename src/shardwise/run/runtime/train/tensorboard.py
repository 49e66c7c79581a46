"""Scalars in TensorBoard's event files: TFRecords with masked CRC-32C around a few fields of its Event message.

Event: 1 wall time, 2 step, 3 version, 5 summary; Summary: 1 value;
Value: 1 tag, 2 number (tensorflow/core/util/event.proto, framework/summary.proto).
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from shardwise.event_record import record
from shardwise.measured.record.writer import AddedFile


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def event(wall_s: float, step: int, *, scalars: Mapping[str, float] | None = None, version: str = "") -> bytes:
    found = _varint(1 << 3 | 1) + struct.pack("<d", wall_s) + _varint(2 << 3) + _varint(step)
    if version:
        found += _bytes(3, version.encode())
    if scalars:
        number = _varint(2 << 3 | 5)
        values = (_bytes(1, tag.encode()) + number + struct.pack("<f", value) for tag, value in scalars.items())
        found += _bytes(5, b"".join(_bytes(1, value) for value in values))
    return found


class EventFile:
    """One file of a run; a run that goes on later writes another beside it."""

    def __init__(self, folder: Path) -> None:
        seconds = time.time_ns() // 10**9
        self.path = folder / f"events.out.tfevents.{seconds}.{socket.gethostname()}.{os.getpid()}"
        self.file = AddedFile(self.path, "tensorboard")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
        except OSError as error:
            raise ValueError(
                f"tensorboard: {str(folder)!r} cannot be written ({error.strerror}); write a folder"
            ) from None
        self.file.add(record(event(time.time(), 0, version="brain.Event:2")))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        self.file.add(record(event(time.time(), step, scalars=scalars)))
