"""Perfetto's own traces (`.pftrace`, `.perfetto-trace`): read by its trace processor, where that is on this machine.

Nothing is downloaded. The program is asked once for all slices and answers with a table, whose texts are in hexadecimal
so that no name can break a line. Slices are those of torch.profiler, or of rocprofv3, which has names of its own for
the same kinds.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from shardwise.measured.diagnose.device_trace import RankTrace
from shardwise.programs.importers._file import check_file
from shardwise.programs.importers.kineto import TraceReading
from shardwise.programs.importers.trace_stream import EventArgs, TraceEvent

PROGRAM = "trace_processor_shell"
VARIABLE = "SHARDWISE_TRACE_PROCESSOR"
KEPT = Path(".local/share/perfetto/prebuilts")
"""where Perfetto's own scripts keep what they downloaded, below the home folder"""
LONGEST_S = 600
LONGEST_LINE = 100_000
PIECE = 50_000
KINDS = {
    "kernel_dispatch": "kernel", "memory_copy": "gpu_memcpy", "hip_api": "hip_runtime",
    "hip_runtime_api": "hip_runtime", "marker_api": "user_annotation",
}  # fmt: skip
"""rocprofv3's kinds in the words of torch.profiler"""
_SEEN = "COALESCE(EXTRACT_ARG(s.arg_set_id, 'args.{0}'), EXTRACT_ARG(s.arg_set_id, 'debug.{0}'){1}, '')"
QUERY = f"""
SELECT s.ts AS ts, s.dur AS dur, COALESCE(t.tid, 0) AS tid, COALESCE(p.pid, 0) AS pid,
  hex(COALESCE(s.category, '')) AS category, hex(COALESCE(s.name, '')) AS name,
  hex({_SEEN.format("correlation", ", EXTRACT_ARG(s.arg_set_id, 'debug.corr_id')")}) AS correlation,
  hex({_SEEN.format("External id", "")}) AS external, hex({_SEEN.format("Collective name", "")}) AS op,
  hex({_SEEN.format("Process Group Ranks", "")}) AS ranks, hex({_SEEN.format("Process Group Description", "")}) AS about
FROM slice s
LEFT JOIN thread_track tt ON tt.id = s.track_id LEFT JOIN thread t ON t.utid = tt.utid
LEFT JOIN process_track pt ON pt.id = s.track_id LEFT JOIN process p ON p.upid = COALESCE(t.upid, pt.upid)
WHERE s.dur >= 0 ORDER BY s.ts;
"""
COLUMNS = 11


def is_perfetto(head: bytes) -> bool:
    """A list of packets: each begins with the same byte and its length. A text may begin with that byte, too."""
    at, packets = 0, 0
    while at < len(head) and packets < 8:
        if head[at] != 0x0A:
            return False
        length, shift, at = 0, 0, at + 1
        while at < len(head) and shift < 35:
            length |= (head[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not head[at - 1] & 0x80:
                break
        at, packets = at + length, packets + 1
    return packets > 0 and any(byte < 9 for byte in head[:4096])


def trace_processor() -> Path | None:
    """By the variable, on the path, or where Perfetto's own scripts leave it."""
    named = os.environ.get(VARIABLE, "")
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK) or not path.is_file():
            raise ValueError(f"{VARIABLE}: {named!r} cannot be run; write the path of {PROGRAM}")
        return path
    found = shutil.which(PROGRAM)
    if found is not None:
        return Path(found)
    kept = [path for path in (Path.home() / KEPT).glob(f"{PROGRAM}*")
            if path.suffix not in (".sha256", ".tmp") and path.is_file() and os.access(path, os.X_OK)]  # fmt: skip
    return max(kept, key=lambda path: path.stat().st_mtime, default=None)


def read_perfetto(path: Path) -> list[RankTrace]:
    check_file(path, "run", "a trace of Perfetto")
    program = trace_processor()
    if program is None:
        raise ValueError(
            f"run: {path.name} is a trace of Perfetto, and its {PROGRAM} is not on this machine; "
            f"name it in {VARIABLE}, or write the trace as JSON"
        )
    reading = TraceReading(with_operators=False)
    for events in _asked(program, path):
        reading.take(events)
    return reading.traces(path.name, {})


def _asked(program: Path, path: Path) -> Iterator[list[TraceEvent]]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as told:
        query = Path(folder) / "slices.sql"
        query.write_text(QUERY, encoding="ascii")
        command = [str(program), "-q", str(query), str(path.absolute())]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told, cwd=folder
            )
        except OSError as error:
            raise ValueError(f"{VARIABLE}: {str(program)!r} cannot be run ({error.strerror}); name another") from None
        late = threading.Timer(LONGEST_S, process.kill)
        late.start()
        try:
            with process:
                try:
                    yield from _events(process.stdout, path) if process.stdout is not None else ()
                except BaseException:
                    process.kill()
                    raise
        finally:
            late.cancel()
        if process.returncode:
            told.seek(0)
            last = (told.read(LONGEST_LINE).decode("utf-8", errors="replace").strip().splitlines() or ["no reason"])[-1]
            why = f"no answer in {LONGEST_S} s" if process.returncode < 0 else last[:200]
            raise ValueError(f"run: {path.name} cannot be read by {program.name} ({why}); record fewer steps")


def _events(out: IO[bytes], path: Path) -> Iterator[list[TraceEvent]]:
    found: list[TraceEvent] = []
    for line in iter(lambda: out.readline(LONGEST_LINE), b""):
        cells = line.decode("ascii", errors="replace").strip().replace('"', "").split(",")
        if len(cells) != COLUMNS or not cells[0].lstrip("-").isdigit():
            continue  # the head of the table, and an empty line behind it
        found.append(_event(cells, path))
        if len(found) >= PIECE:
            yield found
            found = []
    yield found


def _event(cells: list[str], path: Path) -> TraceEvent:
    try:
        start, length, thread, process = (int(cell) for cell in cells[:4])
        kind, name, correlation, external, op, ranks, about = (
            bytes.fromhex(cell).decode("utf-8", errors="replace") for cell in cells[4:]
        )
    except ValueError:
        raise ValueError(
            f"run: {path.name}: {PROGRAM} answered with {str(cells)[:80]!r}; is it the right program?"
        ) from None
    args = EventArgs(
        correlation=_number(correlation), external=_number(external), op=op or None, ranks=ranks or None,
        description=about or None,
    )  # fmt: skip
    return TraceEvent(name=name, cat=KINDS.get(kind, kind), ts=start / 1e3, dur=length / 1e3, pid=process, tid=thread,
                      args=args)  # fmt: skip


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() and len(text) < 19 else None
