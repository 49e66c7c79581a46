"""Reads a foreign file whole, within bounds, and says what it looks like."""

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec

from shardwise.fields import is_there, read_file

MOST_BYTES = 256 * 2**20
MOST_TEXT_BYTES = 512 * 2**20
"""in memory: one character beyond the basic plane makes all of a text four times as large"""
MOST_LINES, MOST_CELLS = 4_000_000, 16_000_000
MOST_JSON_BYTES = 5 * 2**28
OBJECT_BYTES, LIST_BYTES, VALUE_BYTES = 240, 80, 64
"""of memory for each brace, bracket and comma of a JSON document"""


def read_bytes(path: Path, field: str = "from") -> bytes:
    """The content, unpacked where it is gzip. `field`: what the user named the file by."""
    raw = read_file(path, field, MOST_BYTES, "the path of a file", pipes=True)
    if raw[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
                raw = packed.read(MOST_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            raise ValueError(f"{field}: {path.name} begins like gzip but cannot be unpacked; is it complete?") from None
    if len(raw) > MOST_BYTES:
        raise ValueError(f"{field}: {path.name} holds more than {MOST_BYTES // 2**20} MiB; cut it")
    return raw


def read_text(path: Path, field: str) -> str:
    return text_of(read_bytes(path, field), path.name, field)


def text_of(raw: bytes, name: str, field: str) -> str:
    check_cells(raw, name, field)
    text = raw.decode("utf-8", errors="replace")
    if sys.getsizeof(text) > MOST_TEXT_BYTES:
        raise ValueError(f"{field}: {name} takes more than {MOST_TEXT_BYTES // 2**20} MiB as a text; cut it")
    return text


def check_cells(raw: bytes, name: str, field: str) -> None:
    """Lines and cells of a log or a table each take more memory than they have characters."""
    lines = raw.count(b"\n") + raw.count(b"\r")
    if lines > MOST_LINES:
        raise ValueError(f"{field}: {name} has more than {MOST_LINES:,} lines; cut it")
    if lines + sum(map(raw.count, (b",", b";", b"\t"))) > MOST_CELLS:
        raise ValueError(f"{field}: {name} has more than {MOST_CELLS:,} cells; cut it")


def json_of(content: bytes | str, kind: Any = Any) -> Any:
    """A document of any shape, unless it takes more memory than its text lets expect; the error names no file."""
    marks = b"{[," if isinstance(content, bytes) else "{[,"
    count = [content.count(marks[place : place + 1]) for place in range(3)]  # type: ignore[arg-type]
    if count[0] * OBJECT_BYTES + count[1] * LIST_BYTES + count[2] * VALUE_BYTES > MOST_JSON_BYTES:
        raise ValueError(f"its {sum(count):,} values take more than {MOST_JSON_BYTES // 2**20:,} MiB; cut it")
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def check_file(path: Path, field: str, wanted: str) -> None:
    """Of what is read in pieces: a pipe or a device may never end."""
    try:
        there = is_there(path)
    except (OSError, ValueError):
        there = False
    if not there:
        raise ValueError(f"{field}: there is no file {str(path)!r}; write {wanted}")


def looks_like(raw: bytes) -> str:
    """'json' or 'text'; log lines may begin with a bracket, so only an object counts as JSON."""
    return "json" if raw[:4096].lstrip()[:1] == b"{" else "text"
