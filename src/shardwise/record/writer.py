"""Appends lines to the file of one rank. One system call each, so that a killed rank leaves whole lines; a disk that is
full costs the record, not the run."""

import os
import sys
from pathlib import Path

import msgspec

from shardwise.record.step import RecordHead, RecordLine, RunEnd, RunEvent, StepRecord

LAUNCHER = "launcher"
_ENCODE = msgspec.json.Encoder()


def rank_file(folder: Path, rank: int | None) -> Path:
    return folder / (f"rank-{rank:05}.jsonl" if rank is not None else f"{LAUNCHER}.jsonl")


class RecordWriter:
    def __init__(self, folder: Path | str, rank: int | None) -> None:
        """`rank`: None for the process that started the ranks."""
        self.path = rank_file(Path(folder), rank)
        self.failed = ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ValueError(f"records: {str(folder)!r} cannot be written ({error.strerror}); write a folder") from None

    def head(self, head: RecordHead) -> None:
        self._write(RecordLine(head=head))

    def step(self, step: StepRecord) -> None:
        self._write(step)

    def event(self, event: RunEvent) -> None:
        self._write(RecordLine(event=event))

    def end(self, end: RunEnd) -> None:
        self._write(RecordLine(end=end))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: object) -> None:
        if self._file < 0:
            return
        try:
            os.write(self._file, _ENCODE.encode(line) + b"\n")
        except OSError as error:
            if not self.failed:
                self.failed = error.strerror or "cannot be written"
                print(f"records: {self.path} ({self.failed}); the run goes on", file=sys.stderr, flush=True)
