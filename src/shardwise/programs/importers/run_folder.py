"""Everything that a run left in a folder: records, logs, traces, dumps, failure lines, counters, checkpoints."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from shardwise.measured.diagnose.counters import CounterSeries
from shardwise.measured.diagnose.failure_lines import FailureLine, failures_of
from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.recorder import RecorderDump
from shardwise.measured.diagnose.records import RunRecords
from shardwise.measured.diagnose.what_if import PipelineTrace
from shardwise.programs.importers._file import read_text
from shardwise.programs.importers.counters import read_counters
from shardwise.programs.importers.logs._contract import clock, plain_lines
from shardwise.programs.importers.room import Room
from shardwise.programs.importers.run_files import files_of, is_trace, read_run_file
from shardwise.programs.importers.step_records import FILE, read_records
from shardwise.programs.importers.straggler_trace import is_straggler_trace, read_straggler_trace

MOST_FILES = 10_000
DEEPEST = 4
"""folders within folders"""
TEXT = (".log", ".txt", ".err", ".out", ".stderr", ".stdout", "")
MOST_LINES = 2_000
"""failure lines that are kept"""
CHECKPOINT = "step-"
FEW_COUNTERS = 2
"""a text with fewer is something else"""


@dataclass
class RunFolder:
    records: RunRecords | None = None
    logs: list[RunLog] = field(default_factory=list)
    dumps: list[RecorderDump] = field(default_factory=list)
    lines: list[FailureLine] = field(default_factory=list)
    checkpoints: list[Path] = field(default_factory=list)
    """folders that hold checkpoints"""
    pipelines: list[tuple[str, PipelineTrace]] = field(default_factory=list)
    """traces of a pipeline's pieces, with their names"""
    counters: list[CounterSeries] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def read_folder(folder: Path) -> RunFolder:
    if not os.path.isdir(folder):  # also of names that are too long
        raise ValueError(
            f"folder: {str(folder)[:200]!r} is not a folder; write the one with the run's logs and records"
        )
    found = RunFolder()
    recorded: dict[Path, list[Path]] = {}
    files, room = _files(folder, found), Room()
    for number, path in enumerate(files):
        room.check(number, len(files))
        name = str(path.relative_to(folder))
        if FILE.fullmatch(path.name):
            recorded.setdefault(path.parent, []).append(path)
        elif path.suffix == ".parquet" or (path.suffix == ".csv" and is_straggler_trace(path)):
            _pipeline(path, name, found)
        else:
            _read(path, name, found)
    if recorded:
        newest = max(recorded, key=lambda each: max(path.stat().st_mtime for path in recorded[each]))
        found.records = read_records(recorded[newest], str(newest.relative_to(folder)) or ".")
        found.read.append(f"{found.records.name}: records of {len(found.records.ranks)} ranks")
        found.left_out += [f"{each.relative_to(folder)}: older records" for each in recorded if each != newest]
    return found


def is_run_folder(folder: Path) -> bool:
    """A folder without traces, of which logs and records are the whole story."""
    return os.path.isdir(folder) and not any(is_trace(path) for path, _ in files_of([folder]))


def _files(folder: Path, found: RunFolder) -> list[Path]:
    """Without what is inside checkpoints; their folders are noted."""
    paths: list[Path] = []
    for here, folders, names in os.walk(folder):
        place = Path(here)
        if len(place.relative_to(folder).parts) >= DEEPEST:
            folders.clear()
        if any(each.startswith(CHECKPOINT) for each in folders):
            found.checkpoints.append(place)
        folders[:] = sorted(each for each in folders if not each.startswith((CHECKPOINT, ".")))
        paths += [place / name for name in sorted(names) if not name.startswith(".")]
        if len(paths) > MOST_FILES:
            raise ValueError(f"folder: {str(folder)!r} holds more than {MOST_FILES:,} files; write the run's own")
    return [path for path in paths if path.is_file()]


def _read(path: Path, name: str, found: RunFolder) -> None:
    try:
        what = read_run_file(path)
        if isinstance(what, RunLog):
            found.logs.append(what)
            found.left_out += [f"{name}: {what.damaged}"] if what.damaged else []
        elif isinstance(what, RecorderDump):
            found.dumps.append(what)
        else:
            found.left_out.append(f"{name}: a trace; `shardwise why` reads it")
            return
        found.read.append(name)
    except ValueError as error:
        if counters := _counters(path):
            found.counters += counters
            found.read.append(f"{name}: {len(counters)} counters")
            return
        if path.suffix not in TEXT:
            found.left_out.append(f"{name}: {str(error)[:200]}")
            return
    if path.suffix in TEXT:
        lines = failure_lines(path)
        found.lines += lines[: MOST_LINES - len(found.lines)]
        if name not in found.read:
            found.read.append(name)


def _pipeline(path: Path, name: str, found: RunFolder) -> None:
    try:
        found.pipelines.append((name, read_straggler_trace(path)))
        found.read.append(name)
    except ValueError as error:
        found.left_out.append(f"{name}: {str(error)[:200]}")


def _counters(path: Path) -> list[CounterSeries]:
    """Of a text with at least as many counters as its kinds have."""
    if path.suffix not in (*TEXT, ".csv", ".prom"):
        return []
    try:
        found = read_counters(path)
    except ValueError:
        return []
    return found if len(found) >= FEW_COUNTERS else []


def failure_lines(path: Path) -> list[FailureLine]:
    try:
        text = read_text(path, "folder")
    except ValueError:
        return []
    lines = plain_lines(text)
    return failures_of(lines, map(clock, lines))
