"""Files that a run adds lines to. One system call a line, so that a killed rank leaves whole ones; a disk that is full
costs the file, not the run."""

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from shardwise.measured.record.step import RecordHead, RecordLine, RunEnd, RunEvent, StepRecord

LAUNCHER = "launcher"
_ENCODE = msgspec.json.Encoder()


def rank_file(folder: Path, rank: int | None) -> Path:
    return folder / (f"rank-{rank:05}.jsonl" if rank is not None else f"{LAUNCHER}.jsonl")


def say(line: str) -> None:
    """On stderr, as long as it can be written there."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        forget_stderr()


def forget_stderr() -> None:
    """It is a file on a disk that is full, or its reader left: from now on it is nothing, and ends nothing."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class AddedFile:
    """`what`: its option. What cannot be written is said once, and `failed` from then on; nothing is raised."""

    def __init__(self, path: Path, what: str) -> None:
        self.path, self.what, self.failed = path.absolute(), what, ""

    def add(self, content: bytes) -> None:
        try:
            self._add(content)
        except OSError as error:
            self._fail(error)

    def _add(self, content: bytes) -> None:
        """Opened for each: one that was moved or deleted is there again."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            before, written = os.fstat(file).st_size, 0
            try:
                while written < len(content):
                    written += os.write(file, content[written:])
            except OSError:
                if written and os.fstat(file).st_size == before + written:
                    os.ftruncate(file, before)
                raise
        finally:
            os.close(file)

    def _fail(self, error: OSError) -> None:
        if self.failed:
            return
        why = f"{error.strerror}, {errno.errorcode.get(error.errno or 0, 'no number')}"
        self.failed = f"{self.what} {str(self.path)!r} ({why})"
        say(f"{self.what}: {str(self.path)!r} cannot be written ({why}); the run goes on")


class RecordWriter:
    def __init__(self, folder: Path | str, rank: int | None) -> None:
        """`rank`: None for the process that started the ranks."""
        self._file = AddedFile(rank_file(Path(folder), rank), "records")
        self.path, self._closed = self._file.path, False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
        except OSError as error:
            raise ValueError(f"records: {str(folder)!r} cannot be written ({error.strerror}); write a folder") from None

    @property
    def failed(self) -> str:
        """The file and why it lacks lines; empty: it does not."""
        return self._file.failed

    def head(self, head: RecordHead) -> None:
        self._write(RecordLine(head=head))

    def step(self, step: StepRecord) -> None:
        self._write(step)

    def event(self, event: RunEvent) -> None:
        self._write(RecordLine(event=event))

    def end(self, end: RunEnd) -> None:
        self._write(RecordLine(end=end))

    def close(self) -> None:
        self._closed = True

    def _write(self, line: object) -> None:
        if not self._closed:
            self._file.add(_ENCODE.encode(line) + b"\n")
