"""Files of a run told apart by their content: logs, tables, traces, exports of nsys, dumps of a flight recorder."""

import gzip
import json
import os
import pickle
import sqlite3
import sys
from pathlib import Path

import pytest
from log_samples import log_of

from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.measured.diagnose.recorder import stuck_in
from shardwise.programs.importers import room
from shardwise.programs.importers.flight_recorder import read_dump
from shardwise.programs.importers.nsys import read_nsys
from shardwise.programs.importers.run_files import read_run, read_run_file
from shardwise.programs.importers.run_folder import read_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "diagnose"))
from made_traces import Made, write

GEMM, REDUCE, LAUNCH, DATA, STEP = range(5)
WORDS = {GEMM: "gemm", REDUCE: "ncclDevKernel_AllReduce_Sum", LAUNCH: "cudaLaunchKernel_v7000", DATA: "get_batch",
         STEP: "iteration 7"}  # fmt: skip
COLUMNS = "start INTEGER, end INTEGER, correlationId INTEGER"


def nsys(path: Path, data_ms: int = 30, device: int = 0) -> Path:
    """Two marks, 100 ms apart: the next batch, 40 ms of kernels, a reduction that nothing hides."""
    ms = 1_000_000
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        file.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({COLUMNS}, deviceId INTEGER, demangledName INTEGER, "
                     "shortName INTEGER)")  # fmt: skip
        file.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({COLUMNS}, nameId INTEGER)")
        file.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER)")
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", WORDS.items())
        for step in range(2):
            at = (1000 + 100 * step) * ms
            begun = at + data_ms * ms
            kernels = [(begun, begun + 40 * ms, GEMM), (begun + 40 * ms, at + 100 * ms, REDUCE)]
            for number, (start, end, name) in enumerate(kernels):
                file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)",
                             (start, end, 10 * step + number, device, name, name))  # fmt: skip
                file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                             (begun - ms, begun, 10 * step + number, LAUNCH))  # fmt: skip
            file.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, NULL, ?)", (at, begun, DATA))
            file.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL)", (at, at + 100 * ms, f"iteration {step}"))
    return path


def test_an_export_of_nsys(tmp_path):
    step = measured_step(read_nsys(nsys(tmp_path / "report.sqlite")), None)
    parts = {cause.code: round(cause.seconds * 1e3, 3) for cause in step.causes}
    assert parts == {"compute": 40, "comm": 30, "data": 30}
    assert (step.step_s, step.steps) == (pytest.approx(0.1), 1)


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:3000], lambda raw: raw[:100] + b"\xff" * 4000, lambda raw: raw[:16]]
)
def test_a_damaged_export_is_one_line(tmp_path, damage):
    path = nsys(tmp_path / "report.sqlite")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"run: report\.sqlite") as error:
        read_run_file(path)
    assert "\n" not in str(error.value)


def test_a_view_in_place_of_a_table_is_not_read(tmp_path):
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        file.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start")
    with pytest.raises(ValueError, match="is not a plain table"):
        read_nsys(path)


def dump(last: int, completed: int, op: str = "all_reduce") -> dict:
    entries = [
        {"collective_seq_id": n, "process_group": ["0", "default_pg"],
         "profiling_name": f"nccl:{op if n == last else 'all_reduce'}",
         "input_sizes": [[8]], "state": "completed" if n <= completed else "started", "is_p2p": False}
        for n in range(1, last + 1)
    ]  # fmt: skip
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    return {"version": "2.10", "pg_config": {"0": group}, "entries": entries,
            "pg_status": {"0": {"last_enqueued_collective": last, "last_completed_collective": completed}}}  # fmt: skip


def dumps(folder: Path, *contents: dict, packed: bool) -> list[Path]:
    paths = []
    for rank, content in enumerate(contents):
        path = folder / (f"nccl_trace_rank_{rank}" + ("" if packed else ".json"))
        path.write_bytes(pickle.dumps(content, protocol=2) if packed else json.dumps(content).encode())
        paths.append(path)
    return paths


@pytest.mark.parametrize("packed", [True, False])
def test_the_rank_that_did_not_come(tmp_path, packed):
    files = read_run(dumps(tmp_path, dump(5, 4), dump(4, 4), dump(5, 4), packed=packed))
    (stuck,) = stuck_in(files.dumps)
    assert (stuck.number, stuck.op, stuck.missing) == (5, "all_reduce", ("rank 1",))


def test_ranks_that_asked_for_different_things_and_a_collective_that_does_not_end(tmp_path):
    (odd,) = stuck_in(read_run(dumps(tmp_path, dump(5, 4), dump(5, 4, "all_gather"), dump(5, 4), packed=True)).dumps)
    assert odd.missing == ("rank 1",)
    assert "all_gather" in odd.why
    (network,) = stuck_in(read_run(dumps(tmp_path, dump(5, 4), dump(5, 4), packed=True)).dumps)
    assert network.missing == ()
    assert "network" in network.why
    assert stuck_in(read_run(dumps(tmp_path, dump(5, 5), dump(5, 5), packed=True)).dumps) == []


class _Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_pickle_that_would_run_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "dump_0"
    path.write_bytes(pickle.dumps({"entries": [_Runs()]}))
    with pytest.raises(ValueError, match="it asks for posix"):
        read_dump(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("raw", [
    b"\x80\x02", b"\x80\x02}q\x00.", b"\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", b"\x80\x02]r" + b"\xff" * 9,
    pickle.dumps({"entries": 3}), pickle.dumps([1]),
])  # fmt: skip
def test_a_damaged_dump_is_one_line(tmp_path, raw):
    path = tmp_path / "dump_0"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="run: dump_0") as error:
        read_run_file(path)
    assert "\n" not in str(error.value)


def test_a_folder_with_everything(tmp_path):
    write(Made(ranks=2), tmp_path)
    (tmp_path / "train.log").write_text(log_of("megatron", [4.0] * 10))
    (tmp_path / "steps.csv.gz").write_bytes(gzip.compress(b"step,step_time\n1,4\n2,4\n"))
    (tmp_path / "README.md").write_text("no run\n")
    files = read_run([tmp_path])
    assert [trace.rank for trace in files.traces] == [0, 1]
    assert {log.program for log in files.logs} == {"Megatron", "a table"}
    assert [line.split(":")[0] for line in files.left_out] == ["README.md"]


def test_a_file_that_is_named_must_be_one(tmp_path):
    path = tmp_path / "notes.txt"
    for content in (b"no run\n", b"", b"\x00" * 5000, b"\x1f\x8b\x00", os.urandom(2000)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"run: notes\.txt"):
            read_run([path])
    with pytest.raises(ValueError, match="there is no file"):
        read_run([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="could be read"):
        read_run([tmp_path / "empty"])


def test_a_log_knows_its_name(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(log_of("nemo", [4.0] * 5))
    found = read_run_file(path)
    assert isinstance(found, RunLog)
    assert found.name == "train.log"


@pytest.mark.parametrize("read", [lambda folder: read_run([folder]), read_folder], ids=["run", "folder"])
def test_many_files_have_a_bound_together(read, tmp_path, monkeypatch):
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(log_of("megatron", [1.0] * 5))
    assert read(tmp_path).logs
    held = iter(range(0, 9 * 2**29, 2**29))
    monkeypatch.setattr(room, "held_bytes", lambda: next(held))
    with pytest.raises(ValueError, match=r"1 of 4 files fill more than 768\.0 MiB of memory; write fewer"):
        read(tmp_path)
