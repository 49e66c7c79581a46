"""Reads a foreign file whole, within bounds, and says what it looks like."""

import gzip
import io
import zlib
from pathlib import Path

from shardwise.bounded import text_of
from shardwise.fields import is_there, read_file

MOST_BYTES = 256 * 2**20


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
