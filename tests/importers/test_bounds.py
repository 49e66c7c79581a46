"""Files made to hang or to fill the memory are refused in one line that names the file and the bound."""

import gzip
import json
import pickle
import sqlite3
import struct
from itertools import count

import nsys_files
import pytest

from shardwise import bounded
from shardwise.bounded import json_of, text_of, toml_of
from shardwise.event_record import record
from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.recorder import stuck_in
from shardwise.programs.importers import plain_pickle, room, sqlite_file, trace_stream
from shardwise.programs.importers.event_file import parse_events
from shardwise.programs.importers.flight_recorder import read_dump
from shardwise.programs.importers.kineto import read_trace
from shardwise.programs.importers.nsys import read_nsys
from shardwise.programs.importers.plain_pickle import load
from shardwise.programs.importers.run_files import read_run, read_run_file
from shardwise.programs.importers.run_folder import read_folder
from shardwise.programs.importers.step_records import read_records, record_files
from shardwise.run.runtime.train.tensorboard import event


def shared(kind, deep=60):
    found = kind()
    for _ in range(deep):
        found = kind((found, found))
    return found


def dump_of(value) -> bytes:
    return pickle.dumps({"entries": [{"collective_seq_id": 1, "input_sizes": value}]}, 2)


@pytest.mark.parametrize(("raw", "bound"), [
    (dump_of(shared(list)), "when it is expanded"), (dump_of(shared(tuple)), "when it is expanded"),
    (b"\x80\x02}" + pickle.dumps(shared(tuple), 2)[2:-1] + b"K\x01s.", "a key that is a tuple"),
    (dump_of("x" * 2_000_000), "a text of more than"), (dump_of(2**200), "a number of more than"),
    (dump_of([["x" * 1_000_000] for _ in range(1)] * 2000), "when it is expanded"),
    (b"\x80\x02]q\x00h\x00a.", "a container inside itself"), (b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".", "deep"),
    (b"\x80\x02cos\nsystem\n.", "it asks for os.system"), (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
    (b"\x80\x02K\x01K\x02a.", "it is damaged"), (b"\x80\x02h\x05.", "it is damaged"), (b"\x80\x02a.", "it is damaged"),
    (b"\x80\x02K\x01b.", "it asks for BUILD"), (b"\x80\x02", "pickle exhausted"),
])  # fmt: skip
def test_a_pickle_beyond_a_bound_names_it(tmp_path, raw, bound):
    path = tmp_path / "dump_0"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"run: dump_0 .*") as error:
        read_dump(path)
    assert bound in str(error.value)


def test_steps_of_a_pickle_are_bounded(monkeypatch):
    monkeypatch.setattr(plain_pickle, "MOST_STEPS", 100)
    assert load(b"\x80\x02]" + b"K\x01a" * 40 + b".") == [1] * 40
    with pytest.raises(ValueError, match="more than 100 steps"):
        load(b"\x80\x02]" + b"K\x01a" * 60 + b".")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_data_is_read_as_pickle_itself_reads_it(protocol):
    inner = {"b": [1, 2.5, None, True, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], 7: "ä\n" * 300, "n": -(2**70)}
    value = {"a": inner, "again": inner, "large": list(range(3000)), "wide": {str(n): n for n in range(2000)}}
    assert load(pickle.dumps(value, protocol)) == value


def test_typed_lists_of_torch_are_read():
    raw = b"\x80\x02}X\x01\x00\x00\x00actorch.jit._pickle\nbuild_intlist\n](K\x01K\x02e\x85Rs."
    assert load(raw) == {"a": [1, 2]}
    tagged = b"\x80\x02ctorch.jit._pickle\nrestore_type_tag\n]K\x05aX\x09\x00\x00\x00List[int]\x86R."
    assert load(tagged) == [5]


def test_many_groups_are_each_looked_at_once(tmp_path, monkeypatch):
    """As many looks at an entry with twice the groups as with each half: not four times."""
    looks = []
    from shardwise.programs.importers import flight_recorder

    number = flight_recorder._number
    monkeypatch.setattr(flight_recorder, "_number", lambda value: looks.append(1) or number(value))

    def looked(groups: int) -> int:
        entries = [{"collective_seq_id": 1, "process_group": [str(n), "g"], "profiling_name": "nccl:all_reduce",
                    "state": "scheduled"} for n in range(groups)]  # fmt: skip
        path = tmp_path / "dump_0.json"
        path.write_text(json.dumps({"pg_status": {}, "entries": entries}))
        looks.clear()
        assert len(stuck_in([read_dump(path)])) == groups
        return len(looks)

    assert looked(400) == 2 * looked(200)


ENDLESS = """DROP TABLE NVTX_EVENTS; CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL
SELECT i + 1 FROM n) SELECT i AS start, i + 1 AS end, '' AS text, 1 AS textId FROM n;"""
GENERATED = "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER, value TEXT AS (hex(zeroblob(900000))));"
LONG = "CREATE TABLE t (x TEXT DEFAULT '{}');".format("x" * 200_000)


@pytest.mark.parametrize(("change", "bound"), [
    (ENDLESS, "NVTX_EVENTS is not a plain table"), (GENERATED, "StringIds has a generated column"),
    ("DROP TABLE GPU_METRICS; CREATE VIEW GPU_METRICS AS SELECT 1 AS metricId", "GPU_METRICS is not a plain table"),
    (LONG, "too big"),
    (f"{ENDLESS} PRAGMA writable_schema=ON; UPDATE sqlite_master SET type='table' WHERE name='NVTX_EVENTS'", "NVTX"),
])  # fmt: skip
def test_a_database_that_would_compute_is_refused(tmp_path, change, bound):
    path = nsys_files.export(tmp_path / "job.sqlite")
    with sqlite3.connect(path) as file:
        file.executescript(change)
    with pytest.raises(ValueError, match=r"run: job\.sqlite .*export it again") as error:
        read_nsys(path)
    assert bound in str(error.value)


def test_steps_of_a_database_are_bounded(tmp_path, monkeypatch):
    path = nsys_files.export(tmp_path / "job.sqlite")
    assert len(read_nsys(path)) == 2
    monkeypatch.setattr(sqlite_file, "FEWEST_STEPS", 1000)
    monkeypatch.setattr(sqlite_file, "STEPS_A_BYTE", 0)
    monkeypatch.setattr(sqlite_file, "STEPS_A_LOOK", 100)
    with pytest.raises(ValueError, match=r"run: job\.sqlite .*more than 1,000 steps"):
        read_nsys(path)


def test_a_trace_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_stream, "UNPACKED_FREE", 2**20)
    monkeypatch.setattr(trace_stream, "PIECE", 2**18)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 2**22))
    with pytest.raises(ValueError, match=r"run: rank0\.json\.gz unpacks to more than 200 times"):
        read_trace(path)


def test_texts_documents_and_keys_are_bounded_before_they_are_split(monkeypatch):
    monkeypatch.setattr(bounded, "MOST_LINES", 10)
    monkeypatch.setattr(bounded, "MOST_CELLS", 20)
    monkeypatch.setattr(bounded, "MOST_JSON_BYTES", 200_000)
    assert text_of(b"a\n" * 10, "x.log", "run") == "a\n" * 10
    with pytest.raises(ValueError, match=r"run: x\.log has more than 10 lines"):
        text_of(b"a\n" * 11, "x.log", "run")
    with pytest.raises(ValueError, match=r"run: x\.log has more than 20 cells"):
        text_of(b"1," * 21, "x.log", "run")
    assert json_of(b'{"a": [1, 2]}') == {"a": [1, 2]}
    for content in (b"[" + b"{}," * 1000 + b"{}]", "[" + "1," * 4000 + "1]"):
        with pytest.raises(ValueError, match="values take more than"):
            json_of(content)
    with pytest.raises(ValueError, match="nested too deep"):
        json_of(b"[" * 2000 + b"]" * 2000)
    assert toml_of("[a.b]\nc = 1.5\n") == {"a": {"b": {"c": 1.5}}}
    with pytest.raises(ValueError, match="more than 200 dots"):
        toml_of("a" + ".a" * 300 + " = 1\n")


SCALARS = [{"step_time": 0.5 + n / 8, "loss": 4.0 - n} for n in range(4)]
RECORDS = [record(event(1.0, 0, version="brain.Event:2"))]
RECORDS += [record(event(float(n), n, scalars=each)) for n, each in enumerate(SCALARS, 1)]
WHOLE = b"".join(RECORDS)
BEHIND = len(RECORDS[0])
"""where the first record with scalars begins"""


def test_a_damaged_record_is_left_out_and_named_at_every_byte():
    """Every byte behind the head, three ways: what is left are steps as they were written."""
    written = {n: (each["step_time"], each["loss"]) for n, each in enumerate(SCALARS, 1)}
    for at in range(BEHIND, len(WHOLE)):
        for byte in (WHOLE[at] ^ 1, WHOLE[at] ^ 0x80, 0xFF - WHOLE[at]):
            raw = WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :]
            try:
                log = parse_events(raw, "e")
            except ValueError as error:
                assert "run: e is damaged: record 1 at byte" in str(error)  # noqa: PT017  with all behind it
                continue
            assert log is not None
            assert "record" in log.damaged
            assert len(log.steps) < len(written)
            assert all((step.seconds, step.loss) == pytest.approx(written[step.step]) for step in log.steps)


def test_damage_is_told_of_a_file_and_of_a_folder(tmp_path):
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(WHOLE[:-20] + b"\xff" + WHOLE[-19:])
    found = read_run_file(path)
    assert isinstance(found, RunLog)
    place = f"record 4 at byte {len(WHOLE) - len(RECORDS[-1])}"
    assert place in found.damaged
    assert [line for line in read_folder(tmp_path).left_out if place in line and path.name in line]


def test_a_length_that_is_wrong_ends_the_file():
    raw = bytearray(WHOLE)
    struct.pack_into("<Q", raw, BEHIND, 2**63)
    with pytest.raises(ValueError, match=f"record 1 at byte {BEHIND}"):
        parse_events(bytes(raw))


def records(folder, ranks: int) -> list:
    """Of as many ranks, each with a hundred layers of experts."""
    experts = json.dumps([[1000 + n for n in range(100)]] * 100)
    for rank in range(ranks):
        head = json.dumps({"head": {"rank": rank, "ranks": ranks}})
        step = f'{{"step":1,"at_s":1,"step_s":1,"experts":{experts}}}'
        (folder / f"rank-{rank:05}.jsonl").write_text(f"{head}\n{step}\n")
    return record_files(folder)


@pytest.mark.parametrize("reading", [
    lambda folder: read_records(record_files(folder), "run"), read_folder, lambda folder: read_run([folder]),
])  # fmt: skip
def test_files_that_fill_the_memory_together_are_refused(tmp_path, monkeypatch, reading):
    """Each of them is small. Ten thousand numbers of 32 bytes are more than 320 kB."""
    files = records(tmp_path, 40)
    dump = {"pg_status": {}, "entries": [{"collective_seq_id": 1, "process_group": ["0", "g"], "input_sizes": []}]}
    for number in range(40 if reading is not read_folder else 0):
        (tmp_path / f"dump_{number}.json").write_text(json.dumps({**dump, "entries": dump["entries"] * 1000}))
    assert len(files) == 40
    # what a process holds grows only where nothing that was let go can be used again
    held = count(0, 2**20)
    monkeypatch.setattr(room, "held_bytes", lambda: next(held))
    monkeypatch.setattr(room, "MOST_HELD", 2**21)
    with pytest.raises(ValueError, match=r"run: \d+ of \d+ files fill more than .*every tenth rank"):
        reading(tmp_path)


@pytest.mark.parametrize("bound", ["MOST_READ", "MOST_LINES"])
def test_records_are_read_up_to_a_size_together(tmp_path, monkeypatch, bound):
    """Of ranks that repeat each other nothing is kept, and still each takes its time. Each has two lines."""
    files = records(tmp_path, 8)
    each = {"MOST_READ": files[0].stat().st_size, "MOST_LINES": 2}[bound]
    monkeypatch.setattr(room, bound, 8 * each)
    assert len(read_records(files, "run").ranks) == 8
    monkeypatch.setattr(room, bound, 8 * each - 1)
    with pytest.raises(ValueError, match="run: 8 of 8 files hold more than"):
        read_records(files, "run")
