"""Bounds the memory of an untrusted text or JSON document before it is split: a line, a cell or a value takes far
more than its characters in the file."""

import sys
import tomllib
from typing import Any

import msgspec

MOST_TEXT_BYTES = 512 * 2**20
"""in memory: one character beyond the basic plane makes all of a text four times as large"""
MOST_LINES, MOST_CELLS = 4_000_000, 10_000_000
MOST_JSON_BYTES = 5 * 2**28
MOST_DOTS = 200
"""in a line of TOML, whose parser takes the square of the parts of a key"""
OBJECT_BYTES, LIST_BYTES, VALUE_BYTES = 240, 80, 64
"""of memory for each brace, bracket and comma of a JSON document"""


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


def toml_of(text: str) -> dict[str, Any]:
    """The error names no file."""
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line with more than {MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
