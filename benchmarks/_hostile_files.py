"""Files of a run made to hang, to fill the memory or to run something, and the verb that reads each."""

import gzip
import json
import os
import pickle
import sqlite3
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "importers"))
import nsys_files

MIB = 2**20
MARK = "executed-"
"""begins the name of whatever a file leaves that was run"""
CALIBRATE = "calibrate --from F --out new.toml --on 8xh100"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class HostileFile:
    what: str
    name: str
    line: str
    """words of shardwise; F stands for the file"""
    make: Callable[[Path], None]
    large: bool = False
    """takes seconds to make or to refuse"""


def holds(content: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(content()), None)[1]


def packed(*parts: tuple[bytes, int]) -> Callable[[Path], None]:
    """Each part so many times, packed as it is written."""

    def make(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            for part, times in parts:
                for _ in range(times):
                    file.write(part)

    return make


class RunsCode:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (f"{MARK}pickle",)


def _shared(kind: type, deep: int) -> Any:
    found: Any = kind()
    for _ in range(deep):
        found = kind((found, found))
    return found


def _dump(value: Any) -> bytes:
    return pickle.dumps(
        {
            "pg_config": {},
            "pg_status": {},
            "entries": [{"collective_seq_id": 1, "process_group": ["0", "g"], "input_sizes": value}],
        },
        2,
    )


def _groups(count: int) -> bytes:
    entries = [
        {
            "collective_seq_id": 1,
            "process_group": [str(n), "g"],
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[n]],
            "state": "scheduled",
        }
        for n in range(count)
    ]
    status = {str(n): {"last_enqueued_collective": 2, "last_completed_collective": 0} for n in range(count)}
    return json.dumps({"pg_config": {}, "pg_status": status, "entries": entries}).encode()


PICKLES = (
    ("lists shared 60 deep", lambda: _dump(_shared(list, 60))),
    ("tuples shared 60 deep", lambda: _dump(_shared(tuple, 60))),
    ("a key of shared tuples", lambda: b"\x80\x02}" + pickle.dumps(_shared(tuple, 60), 2)[2:-1] + b"K\x01s."),
    ("30 MB of text 40 times", lambda: _dump(["x" * 30_000_000] * 40)),
    ("a list in itself", lambda: b"\x80\x02]q\x00h\x00a."),
    ("a memo of 2**32", lambda: b"\x80\x02]r\xfe\xff\xff\xff."),
    ("20 million lists", lambda: b"\x80\x02" + b"]" * 20_000_000),
    ("a number of 1 MB", lambda: b"\x80\x02\x8b" + struct.pack("<i", MIB) + b"\x7f" * MIB + b"."),
    ("a call", lambda: pickle.dumps({"entries": [RunsCode()]})),
    ("a frame of 2**60", lambda: b"\x80\x04\x95" + b"\xff" * 8 + b"."),
)
DEEP = b"[" * 1_000_000
HUGE = b"9" * 1_000_000
JSONS = (
    ("1,000,000 brackets", DEEP),
    ("a number of 1,000,000 digits", b'{"hidden_size": ' + HUGE + b"}"),
    ("an exponent of 999,999", b'{"hidden_size": 1e999999, "model_type": "llama"}'),
    ("no text", b"\xff\xfe\x00"),
    ("one name 100,000 times", b"{" + b'"a":{"a":1},' * 100_000 + b'"a":1}'),
)


def _nsys(change: str, rows: int = 0) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        nsys_files.export(path)
        with sqlite3.connect(path) as file:
            file.executescript(change)
            file.executemany("INSERT INTO StringIds (id) VALUES (?)", [(n,) for n in range(rows)])

    return make


def _endless_tree(path: Path) -> None:
    """A table whose pages all point to the same next page, three deep: as many rows as 400**3 leaves have."""
    nsys_files.export(path)
    with sqlite3.connect(path) as file:
        file.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType) VALUES (?, ?, 59)", [(n, n + 1) for n in range(150_000)]
        )
        (root,) = file.execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'").fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
    raw = bytearray(path.read_bytes())
    child = struct.unpack_from(">I", raw, (root - 1) * size + 8)[0]
    inner = bytes(raw[(child - 1) * size : child * size])
    leaf = struct.unpack_from(">I", inner, 8)[0]
    spare = struct.unpack_from(">I", raw, (root - 1) * size + struct.unpack_from(">H", raw, (root - 1) * size + 12)[0])[
        0
    ]
    for page, to in ((root, child), (child, spare), (spare, leaf)):
        at = (page - 1) * size
        raw[at : at + size] = inner
        for cell in range(struct.unpack_from(">H", inner, 3)[0]):
            struct.pack_into(">I", raw, at + struct.unpack_from(">H", inner, 12 + 2 * cell)[0], to)
        struct.pack_into(">I", raw, at + 8, to)
    path.write_bytes(raw)


ENDLESS = """DROP TABLE NVTX_EVENTS; CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE
n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start,
i + 1 AS end, 'step ' || i AS text, 1 AS textId FROM n;"""
GENERATED = "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER, value TEXT AS (hex(zeroblob(900000 + id))));"
DEFAULTS = (
    "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER); ALTER TABLE StringIds ADD value TEXT DEFAULT '{}';"
)
DISGUISED = f"{ENDLESS} PRAGMA writable_schema=ON; UPDATE sqlite_master SET type='table' WHERE name='NVTX_EVENTS';"


def hole(head: bytes = b"", size: int = 2**40) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(head)
            file.truncate(size)

    return make


STEP = b'{"step":1,"at_s":1,"step_s":1,"experts":[[%s]]}\n'

RUN_FILES: tuple[HostileFile, ...] = (
    *(
        HostileFile(f"pickle: {what}", "dump_0", line, holds(make))
        for what, make in PICKLES
        for line in ("why F", "doctor .")
    ),
    *(
        HostileFile(
            f"dump: {what}",
            "dump_0.json",
            "why F",
            holds(lambda c=content: b'{"pg_status": {}, "entries": ' + c + b"}"),
        )
        for what, content in JSONS
    ),
    HostileFile("dump: 40,000 groups", "dump_0.json", "why F", holds(lambda: _groups(40_000))),
    HostileFile("dump: 40,000 groups beside another", "dump_0.json", "doctor .", holds(lambda: _groups(40_000))),
    HostileFile(
        "dump: 80 MiB of {}",
        "dump_0.json",
        "why F",
        holds(lambda: b'{"pg_status": {}, "entries": [' + b"{}," * (80 * MIB // 3) + b"{}]}"),
        large=True,
    ),
    HostileFile("nsys: an endless view", "job.sqlite", "why F", _nsys(ENDLESS)),
    HostileFile("nsys: a view that says it is a table", "job.sqlite", "why F", _nsys(DISGUISED)),
    HostileFile("nsys: a generated column of 5.6 GB", "job.sqlite", "why F", _nsys(GENERATED, 3000)),
    HostileFile(
        "nsys: a default of 1 MB",
        "job.sqlite",
        "why F",
        _nsys(DEFAULTS),
    ),
    HostileFile("nsys: a table without end", "job.sqlite", "why F", _endless_tree),
    HostileFile("nsys: a hole", "job.sqlite", "why F", hole(b"SQLite format 3\x00")),
    HostileFile(
        "trace: 4 GiB of blanks",
        "rank0.json.gz",
        "why F",
        packed((b'{"traceEvents": [', 1), (b" " * MIB, 4096)),
        large=True,
    ),
    HostileFile(
        "trace: an event of 200 MiB",
        "rank0.json.gz",
        "why F",
        packed((b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "', 1), (b"a" * MIB, 200)),
        large=True,
    ),
    HostileFile(
        "trace: brackets", "rank0.json", "why F", holds(lambda: b'{"traceEvents": [' + b"[" * (40 * MIB)), large=True
    ),
    HostileFile(
        "trace: quotes", "rank0.json", "why F", holds(lambda: b'{"traceEvents": [' + b'\\"' * (20 * MIB)), large=True
    ),
    HostileFile("trace: deep", "rank0.json", "why F", holds(lambda: b'{"traceEvents": [{"ph": "X", "args": ' + DEEP)),
    HostileFile(
        "trace: 2,000,000 ranks",
        "rank0.json",
        "why F",
        holds(
            lambda: (
                b'{"traceEvents": ['
                + b",".join(
                    b'{"ph":"X","cat":"compute","name":"f","ts":1,"dur":1,"pid":%d}' % n for n in range(1_000_000)
                )
                + b"]}"
            )
        ),
        large=True,
    ),
    HostileFile(
        "trace: for calibrate",
        "t.json",
        CALIBRATE,
        holds(lambda: b'{"traceEvents": [' + b"{}," * (60 * MIB // 3) + b"{}]}"),
        large=True,
    ),
    HostileFile("log: 250 MiB of line ends", "train.log.gz", "why F", packed((b"\n" * MIB, 250))),
    HostileFile("log: 250 MiB of short lines", "train.log.gz", "why F", packed((b"ab\n" * (MIB // 3), 250))),
    HostileFile("log: a line of 250 MiB", "train.log.gz", "why F", packed((b"9" * MIB, 250)), large=True),
    HostileFile(
        "log: a line of 200 MiB and blanks", "run.log.gz", "doctor .", packed((b"x" + b" " * MIB, 200)), large=True
    ),
    HostileFile(
        "log: 200 MiB with an emoji",
        "train.log.gz",
        "why F",
        packed(("\U0001f600".encode(), 1), (b"loss 1 " * (MIB // 7), 200)),
        large=True,
    ),
    HostileFile("log: 100 GiB that are not there", "train.log", "why F", hole(b"step 1\n", 100 * 2**30)),
    HostileFile("log: gzip cut off", "train.log.gz", "why F", holds(lambda: gzip.compress(b"step 1\n" * 9999)[:-20])),
    HostileFile(
        "table: a line of 200 MiB",
        "steps.csv.gz",
        "why F",
        packed((b"step,step_time\n", 1), (b"12," * (MIB // 3), 200)),
        large=True,
    ),
    HostileFile(
        "table: long numbers",
        "steps.csv",
        "why F",
        holds(lambda: b"step,step_time\n" + HUGE + b"," + HUGE + b"\n1,1e999999\n"),
    ),
    HostileFile(
        "steps: numbers without end",
        "steps.jsonl",
        "why F",
        holds(lambda: b'{"step": ' + HUGE + b', "step_time": 1e999999}\n' * 3),
    ),
    HostileFile(
        "records: 80 MiB of experts",
        "rank-00000.jsonl",
        "doctor .",
        holds(lambda: STEP % (b"999," * (20 * MIB) + b"9")),
        large=True,
    ),
    HostileFile(
        "counters: 200 MiB of cells",
        "nic.csv.gz",
        "watch F --once --counters F",
        packed((b"timestamp,a,b\n", 1), (b"2026-01-01 00:00:00,1,2\n" * 40_000, 200)),
    ),
    HostileFile(
        "clocks: a line of blanks",
        "smi.csv.gz",
        "why F",
        packed((b"index, clocks.current.sm [MHz], name\n0, ", 1), (b" " * MIB, 100)),
        large=True,
    ),
    HostileFile(
        "events: a length of 2**63",
        "events.out.tfevents.1",
        "why F",
        holds(lambda: struct.pack("<QI", 24, 0) + b"\x1a\x0dbrain.Event:2" + b"\xff" * 99),
    ),
)
