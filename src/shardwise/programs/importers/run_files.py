"""What a user has of a run - logs, tables, traces, dumps - told apart by what stands in it."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

from shardwise.fields import opened
from shardwise.measured.diagnose.clocks import ClockLog
from shardwise.measured.diagnose.device_trace import RankTrace
from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.recorder import RecorderDump
from shardwise.programs.importers import clock_log
from shardwise.programs.importers._file import check_file, read_bytes, read_text
from shardwise.programs.importers.event_file import is_event_file, parse_events
from shardwise.programs.importers.flight_recorder import read_dump
from shardwise.programs.importers.kineto import read_trace
from shardwise.programs.importers.logs import log_forms, parse_log
from shardwise.programs.importers.nsys import MAGIC, read_nsys
from shardwise.programs.importers.perfetto import is_perfetto, read_perfetto
from shardwise.programs.importers.room import Room
from shardwise.programs.importers.step_table import parse_table

PEEK = 2**20
MOST_FILES = 10_000
PICKLE = b"\x80"
WANTED = (
    "a training log, a table of steps, a trace of torch.profiler, an sqlite export of nsys, a flight recorder's dump "
    "or a log of clocks"
)


@dataclass(frozen=True)
class RunFiles:
    logs: tuple[RunLog, ...]
    traces: tuple[RankTrace, ...]
    """in the order of their ranks"""
    dumps: tuple[RecorderDump, ...]
    left_out: tuple[str, ...]
    """files of a folder that are nothing of the kind"""
    clocks: tuple[ClockLog, ...] = ()
    """of monitors beside the run"""


def read_run(paths: list[Path]) -> RunFiles:
    logs: list[RunLog] = []
    traces: list[RankTrace] = []
    dumps: list[RecorderDump] = []
    left_out: list[str] = []
    clocks: list[ClockLog] = []
    files, room = files_of(paths), Room()
    for number, (path, named) in enumerate(files):
        room.check(number, len(files))
        try:
            found = read_run_file(path)
        except ValueError as error:
            if named:
                raise
            left_out.append(f"{path.name}: {error}")
            continue
        if isinstance(found, RunLog):
            logs.append(found)
        elif isinstance(found, RecorderDump):
            dumps.append(found)
        elif isinstance(found, ClockLog):
            clocks.append(found)
        else:
            traces += found
    if not logs and not traces and not dumps and not clocks:
        raise ValueError(f"run: nothing in {', '.join(map(str, paths))[:200]} could be read; write {WANTED}")
    traces.sort(key=lambda trace: (trace.rank is None, trace.rank or 0, trace.name))
    return RunFiles(tuple(logs), tuple(traces), tuple(dumps), tuple(left_out), tuple(clocks))


def is_trace(path: Path) -> bool:
    try:
        head = _head(path)
    except ValueError:
        return False
    return head.startswith(MAGIC) or is_perfetto(head) or _is_chrome(head)


def _is_chrome(head: bytes) -> bool:
    start = head.lstrip()[:1]
    return (start == b"{" and (b'"traceEvents"' in head or b'"schemaVersion"' in head)) or (
        start == b"[" and b'"ph"' in head
    )


def read_run_file(path: Path) -> RunLog | RecorderDump | ClockLog | list[RankTrace]:
    head = _head(path)
    if head.startswith(MAGIC):
        return read_nsys(path)
    if head.startswith(PICKLE):
        return read_dump(path)
    if is_perfetto(head):
        return read_perfetto(path)
    if is_event_file(head):
        return _named(parse_events(read_bytes(path, "run"), path.name), path)
    if _is_chrome(head):
        return read_trace(path)
    if head.lstrip()[:1] == b"{" and (b'"pg_status"' in head or (b'"entries"' in head and b'"pg_' in head)):
        return read_dump(path)
    text = read_text(path, "run")
    clocks = clock_log.parse(text)
    if clocks is not None:
        return clocks.named(path.name)
    return _named(parse_log(text) or parse_table(text), path)


def _named(log: RunLog | None, path: Path) -> RunLog:
    if log is None:
        titles = ", ".join(form.title for form in log_forms().values())
        raise ValueError(f"run: {path.name} has no step in a form that is known ({titles}); write {WANTED}")
    return log.named(path.name)


def files_of(paths: list[Path]) -> list[tuple[Path, bool]]:
    """With those of folders; whether each was named itself."""
    found: list[tuple[Path, bool]] = []
    for path in paths:
        try:
            inside = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else None
        except OSError as error:
            raise ValueError(f"run: {str(path)!r} cannot be read ({error.strerror}); write {WANTED}") from None
        if inside is None:
            found.append((path, True))
        else:
            found += [(each, False) for each in inside if not each.name.startswith(".")]
    if len(found) > MOST_FILES:
        raise ValueError(f"run: {len(found):,} files; write at most {MOST_FILES:,}")
    return found


def _head(path: Path) -> bytes:
    """The first bytes, unpacked."""
    check_file(path, "run", WANTED)
    try:
        with opened(path) as file:
            head = file.read(PEEK)
            if head[:2] == b"\x1f\x8b":
                file.seek(0)
                with gzip.GzipFile(fileobj=file) as packed:
                    head = packed.read(PEEK)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(f"run: {path.name} begins like gzip but cannot be unpacked; is it complete?") from None
    except OSError as error:
        raise ValueError(f"run: {str(path)!r} cannot be read ({error.strerror}); write {WANTED}") from None
    return head
