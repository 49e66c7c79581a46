"""Bounds what many files of one question fill together, each of which is bounded by itself."""

from shardwise.bounded import MOST_LINES
from shardwise.measured.record.machine import held_bytes
from shardwise.units import memory_text

MOST_HELD = 3 * 2**28
"""bytes in memory before the last file, which may take as much again"""
MOST_READ = 2**32
"""bytes of files that are read line by line"""
FEWER = "write fewer of them, such as those of every tenth rank"


class Room:
    def __init__(self) -> None:
        self.before, self.bytes, self.lines = held_bytes() or 0, 0, 0

    def check(self, read: int, files: int, last: bytes = b"") -> None:
        """When `read` of so many files were taken in; `last`: another one, which is read line by line."""
        self.bytes, self.lines = self.bytes + len(last), self.lines + last.count(b"\n")
        if (held_bytes() or 0) - self.before > MOST_HELD:
            raise ValueError(
                f"run: {read:,} of {files:,} files fill more than {memory_text(MOST_HELD)} of memory; {FEWER}"
            )
        if self.bytes > MOST_READ or self.lines > MOST_LINES:
            most = f"{memory_text(MOST_READ)} or {MOST_LINES:,} lines"
            raise ValueError(f"run: {read + 1:,} of {files:,} files hold more than {most}; {FEWER}")
