"""A trace's events a few megabytes at a time: a file of gigabytes needs no more memory than its largest piece.

A piece is cut behind an event near its end. Whether the cut is right, decoding tells: a list that begins at an event
is closed by one more bracket only where no object, list or text is open. Where the last few places are all wrong, the
structure is followed byte by byte, which numpy does for all at once.
"""

import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from shardwise.fields import opened
from shardwise.programs.importers._file import check_file

PIECE = 8 * 2**20
LONGEST = 16 * 2**20
"""bytes without the end of an event"""
HEAD = 16 * 2**20
"""bytes in which the list of events begins"""
MOST_PACKED, UNPACKED_FREE = 200, 2**28
"""times that a packed file may grow beyond so many bytes; a trace grows by 10 to 40"""
TAIL = 2**16
TRIES = 4
_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_NO_NUMBER = re.compile(rb"([:,\[]\s*)[-+]?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_BETWEEN = re.compile(rb"\}\s*,\s*\{")


NO_TEXT = msgspec.Raw(b"")


class EventArgs(msgspec.Struct, gc=False):
    """Only what is read; others are skipped."""

    correlation: Any = None
    external: Any = msgspec.field(default=None, name="External id")
    op: Any = msgspec.field(default=None, name="Collective name")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    description: Any = msgspec.field(default=None, name="Process Group Description")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Any = msgspec.field(default=None, name="Seq")
    message: Any = msgspec.field(default=None, name="In msg nelems")
    dims: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input type")


class TraceEvent(msgspec.Struct, gc=False):
    name: Any = ""
    cat: Any = ""
    ph: Any = "X"
    ts: Any = 0
    dur: Any = 0
    pid: Any = 0
    tid: Any = 0
    args: EventArgs | None = None


class _LooseEvent(TraceEvent):
    args: Any = None


_STRICT = msgspec.json.Decoder(list[TraceEvent])
_LOOSE = msgspec.json.Decoder(list[Any])


@dataclass
class EventStream:
    """The events of one file, piece by piece; its other fields are there once it was read to the end."""

    path: Path
    about: dict[str, Any] = field(default_factory=dict)
    """what the file says beside its events"""
    cut_off: bool = False
    bytes_read: int = 0
    most_bytes: float = math.inf

    def __iter__(self) -> Iterator[list[TraceEvent]]:
        check_file(self.path, "run", "the path of a trace")
        try:
            with opened(self.path) as raw:
                packed = raw.read(2) == b"\x1f\x8b"
                if packed:
                    self.most_bytes = max(MOST_PACKED * raw.seek(0, os.SEEK_END), UNPACKED_FREE)
                raw.seek(0)
                if packed:
                    with gzip.GzipFile(fileobj=raw) as unpacked:
                        yield from self._pieces(unpacked)
                else:
                    yield from self._pieces(raw)
        except OSError as error:
            raise ValueError(f"run: {self.path.name} cannot be read ({error}); write the path of a trace") from None

    def _read(self, file: "IO[bytes] | gzip.GzipFile") -> bytes:
        try:
            found = file.read(PIECE)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.cut_off = True
            return b""
        self.bytes_read += len(found)
        if self.bytes_read > self.most_bytes:
            raise ValueError(
                f"run: {self.path.name} unpacks to more than {MOST_PACKED} times its size; write a profiler's trace"
            )
        return found

    def _pieces(self, file: "IO[bytes] | gzip.GzipFile") -> Iterator[list[TraceEvent]]:
        held = self._begin(file)
        while True:
            more = self._read(file)
            held += more
            events, cut, closed = _taken(held, self.path, last=not more)
            if events:
                yield events
            if closed or not more:
                self._end(held[cut:], file, closed)
                return
            held = held[cut:].lstrip(b" \t\r\n,")
            if len(held) > LONGEST:
                raise ValueError(
                    f"run: {self.path.name} has no end of an event in {LONGEST // 2**20} MiB; write a profiler's trace"
                )

    def _begin(self, file: "IO[bytes] | gzip.GzipFile") -> bytes:
        """What follows the bracket that opens the list of events."""
        held = self._read(file)
        if held.lstrip()[:1] == b"[":
            return held.lstrip()[1:].lstrip()
        while (found := _BEGIN.search(held)) is None:
            more = self._read(file)
            if not more or len(held) > HEAD:
                raise ValueError(f"run: {self.path.name} has no 'traceEvents'; write a trace in Chrome's form")
            held += more
        self._tell(held[: found.start()].rstrip().rstrip(b",") + b"}")
        return held[found.end() :].lstrip()

    def _end(self, rest: bytes, file: "IO[bytes] | gzip.GzipFile", closed: bool) -> None:
        if not closed:
            self.cut_off = True
            return
        while len(rest) < HEAD and (more := self._read(file)):
            rest += more
        rest = rest.lstrip(b" \t\r\n,]")
        if rest[:1] == b'"':
            self._tell(b"{" + rest)

    def _tell(self, text: bytes) -> None:
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if isinstance(found, dict):
            self.about |= found


def _decoded(text: bytes, path: Path) -> list[TraceEvent]:
    for whole in (b"[" + text + b"]", _mended(b"[" + text + b"]")):
        try:
            return _STRICT.decode(whole)
        except msgspec.ValidationError:
            break
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    try:
        found = _LOOSE.decode(whole)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(path, error) from None
    return [event for each in found if (event := _event(each)) is not None]


def _mended(text: bytes) -> bytes:
    """As profilers should have written it: numbers that are none as null, and text as text."""
    return _NO_NUMBER.sub(rb"\1null", text).decode("utf-8", errors="replace").encode()


def _event(each: Any) -> TraceEvent | None:
    """One whose arguments are none, or that is no event at all."""
    try:
        loose = msgspec.convert(each, _LooseEvent)
    except msgspec.ValidationError:
        return None
    return TraceEvent(loose.name, loose.cat, loose.ph, loose.ts, loose.dur, loose.pid, loose.tid)


def _broken(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"run: {path.name} is not readable as a trace: {' '.join(str(error)[:200].split())}; write it again"
    )


def _taken(held: bytes, path: Path, *, last: bool) -> tuple[list[TraceEvent], int, bool]:
    """The whole events, the bytes they take, and whether the list ends behind them."""
    if not last:
        places = [found.start() + 1 for found in _BETWEEN.finditer(held, max(len(held) - TAIL, 0))]
        for cut in places[: -TRIES - 1 : -1]:
            try:
                return _STRICT.decode(b"[" + held[:cut] + b"]"), cut, False
            except msgspec.ValidationError:
                break
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    cut, closed = _followed(held)
    return _decoded(held[:cut], path) if cut else [], cut, closed


def _followed(held: bytes) -> tuple[int, bool]:
    """The last place where no object is open, and whether the list's own bracket closes behind it."""
    text = np.frombuffer(held, dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    if len(quotes) and b"\\" in held:
        escaped = [place for place in quotes[np.asarray(text[np.maximum(quotes - 1, 0)] == ord("\\"))].tolist()
                   if _backslashes(held, place) % 2]  # fmt: skip
        quotes = np.setdiff1d(quotes, np.array(escaped, dtype=np.int64), assume_unique=True)
    marks = np.flatnonzero((text == 123) | (text == 125) | (text == 91) | (text == 93))
    marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    kinds = text[marks]
    depth = np.cumsum(np.where((kinds == 123) | (kinds == 91), 1, -1))
    over = np.flatnonzero(depth < 0)
    end = int(over[0]) if len(over) else len(marks)
    whole = np.flatnonzero((depth[:end] == 0) & (kinds[:end] == 125))
    cut = int(marks[whole[-1]]) + 1 if len(whole) else 0
    return cut, bool(len(over))


def _backslashes(held: bytes, place: int) -> int:
    count = 0
    while place - count > 0 and held[place - count - 1] == ord("\\"):
        count += 1
    return count
