"""Perfetto's own traces, through a program that stands for its trace processor: what it is asked, and what is made of
the answer. The real one is tried where it is installed."""

import re
import sqlite3
import stat
import sys

import pytest

from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.programs.exporters.protobuf import bytes_field, text_field, whole_field
from shardwise.programs.importers.perfetto import QUERY, VARIABLE, is_perfetto, read_perfetto, trace_processor
from shardwise.programs.importers.run_files import read_run, read_run_file

MS = 1_000_000
TRACE = b"\x0a\x04\x08\x01\x10\x02" * 20
"""packets of four bytes"""
# kind, name, begin ms, length ms, number that joins kernel and launch
ROCPROF = [
    ("marker_api", "iteration 1", 0, 100, ""), ("marker_api", "iteration 2", 100, 100, ""),
    ("marker_api", 'get_batch "a, b"\n', 0, 10, ""),
    ("hip_api", "hipLaunchKernel", 10, 1, "1"), ("hip_api", "hipLaunchKernel", 110, 1, "3"),
    ("kernel_dispatch", "Cijk_Ailk_Bljk_BBS_BH_MT128x128", 11, 40, "1"),
    ("kernel_dispatch", "ncclDevKernel_Generic(ncclDevComm*, all_reduce)", 51, 59, "2"),
    ("kernel_dispatch", "Cijk_Ailk_Bljk_BBS_BH_MT128x128", 111, 40, "3"),
]  # fmt: skip
FAKE = """#!{python}
import re, sqlite3, sys
assert sys.argv[1] == "-q" and sys.argv[3] == {trace!r}, sys.argv
file = sqlite3.connect({tables!r})
file.create_function("EXTRACT_ARG", 2, lambda number, key: None if number is None else dict(
    file.execute("SELECT key, value FROM args WHERE arg_set_id = ?", (number,))).get(key))
print('"ts","dur","tid","pid","category","name","correlation","external","op","ranks","about"')
for row in file.execute(open(sys.argv[2]).read()):
    print(",".join(str(cell) if isinstance(cell, int) else '"' + cell.replace('"', '""') + '"' for cell in row))
print("Query executed in 3 ms", file=sys.stderr)
"""


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """A program that answers the query from tables of the same names as Perfetto's."""
    tables = tmp_path / "tables.sqlite"
    with sqlite3.connect(tables) as file:
        file.executescript("""
            CREATE TABLE slice (id INTEGER, ts INTEGER, dur INTEGER, track_id INTEGER, category TEXT, name TEXT,
                arg_set_id INTEGER);
            CREATE TABLE args (arg_set_id INTEGER, key TEXT, value);
            CREATE TABLE thread_track (id INTEGER, utid INTEGER); CREATE TABLE process_track (id INTEGER, upid INTEGER);
            CREATE TABLE thread (utid INTEGER, tid INTEGER, upid INTEGER);
            CREATE TABLE process (upid INTEGER, pid INTEGER);
            INSERT INTO thread_track VALUES (5, 1); INSERT INTO thread VALUES (1, 77, 2);
            INSERT INTO process VALUES (2, 70);
        """)
        for number, (kind, name, start, length, joined) in enumerate(ROCPROF):
            file.execute("INSERT INTO slice VALUES (?, ?, ?, 5, ?, ?, ?)",
                         (number, start * MS, length * MS, kind, name, number if joined else None))  # fmt: skip
            if joined:
                file.execute("INSERT INTO args VALUES (?, 'debug.corr_id', ?)", (number, int(joined)))
        file.execute("INSERT INTO slice VALUES (99, 5, -1, 5, NULL, 'still open', NULL)")
    trace = tmp_path / "run.pftrace"
    trace.write_bytes(TRACE)
    program = tmp_path / "trace_processor_shell"
    program.write_text(FAKE.format(python=sys.executable, trace=str(trace), tables=str(tables)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(VARIABLE, str(program))
    return trace


def test_slices_become_the_parts_of_a_step(processor):
    (trace,) = read_run([processor]).traces
    found = measured_step([trace], None)
    parts = {cause.code: round(cause.seconds * 1e3, 3) for cause in found.causes}
    assert found.step_s == pytest.approx(0.1)
    assert parts == {"compute": 40, "comm": 59, "host": 1}
    assert [name.op for name in trace.names if name.kind == "comm"] == ["all_reduce"]


def test_it_is_found_by_the_variable_on_the_path_or_where_perfetto_leaves_it(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert trace_processor() is None
    kept = tmp_path / ".local/share/perfetto/prebuilts"
    kept.mkdir(parents=True)
    for name in ("trace_processor_shell-0123456789abcdef", "trace_processor_shell-0123456789abcdef.sha256"):
        (kept / name).write_text("")
        (kept / name).chmod(0o755)
    assert trace_processor() == kept / "trace_processor_shell-0123456789abcdef"
    (tmp_path / "trace_processor_shell").write_text("")
    (tmp_path / "trace_processor_shell").chmod(0o755)
    assert trace_processor() == tmp_path / "trace_processor_shell"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match=f"{VARIABLE}: .* cannot be run"):
        trace_processor()


def test_without_it_one_line_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run.pftrace").write_bytes(TRACE)
    with pytest.raises(ValueError, match="its trace_processor_shell is not on this machine") as error:
        read_run_file(tmp_path / "run.pftrace")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("script", "said"), [
    ("echo 'Could not open trace file' >&2; exit 1", r"Could not open trace file"),
    ("echo 1,2,3,4,zz,zz,,,,,", "is it the right program"), ("exit 0", "neither kernels nor operators"),
])  # fmt: skip
def test_a_program_that_fails_is_one_line(tmp_path, monkeypatch, script, said):
    program, trace = tmp_path / "processor", tmp_path / "run.pftrace"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    trace.write_bytes(TRACE)
    monkeypatch.setenv(VARIABLE, str(program))
    with pytest.raises(ValueError, match=said) as error:
        read_perfetto(trace)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("head", [b"\n\nstep: 1 loss: 2\n", b"", b"{}", b"\n", b"\x0a\x02ab\x0b", b"\n\x01\x02step 1"])
def test_other_files_are_none(head):
    assert not is_perfetto(head)


def test_nothing_in_the_query_writes():
    assert re.match(r"\s*SELECT\b", QUERY)
    assert QUERY.count(";") == 1


def real_trace() -> bytes:
    """Two kernels of 40 ms on one track, as packets of Perfetto's TracePacket: a track's description (60), then events
    (11) with timestamp (8) and sequence (10)."""
    own = whole_field(1, 7) + text_field(2, "GPU 0")
    packets = [bytes_field(60, own) + whole_field(10, 1)]
    for start in (10, 110):
        for moment, kind in ((start, 1), (start + 40, 2)):
            named = text_field(22, "kernel") + text_field(23, "gemm") if kind == 1 else b""
            event = whole_field(9, kind) + whole_field(11, 7) + named
            packets.append(whole_field(8, moment * MS) + whole_field(10, 1) + bytes_field(11, event))
    return b"".join(bytes_field(1, packet) for packet in packets)


def test_the_real_one_reads_a_trace(tmp_path):
    path = tmp_path / "run.pftrace"
    path.write_bytes(real_trace())
    assert is_perfetto(path.read_bytes())
    if trace_processor() is None:
        pytest.skip(f"trace_processor_shell is not on this machine: not on PATH, not in {VARIABLE}")
    (trace,) = read_run([path]).traces
    assert (trace.end_s - trace.start_s).tolist() == pytest.approx([0.04, 0.04])
