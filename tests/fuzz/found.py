"""What was found, each under a name: the files it needs, the command line, and what it is answered with."""

import io
import json
import zipfile

import numpy as np

DEEP = b"[" * 100_000
LIES = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }".ljust(117)
    + b"\n"
)
"""an array that says it is larger than any memory"""


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(values: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(values), allow_pickle=True)
    return file.getvalue()


GOOD_Y = npy(np.arange(20) % 4)
MLP = json.dumps({"model_type": "mlp", "layer_sizes": [16, 8, 4]}).encode()
TRAIN = ["run", "mlp.json", "--on", "1xh100", "--device", "cpu", "--data", "x.npz"]
XML = ["catalog", "clusters", "--from", "t.xml"]
PLAN = ["run", "plan.json"]
SWEEP = ["sweep", "gpt2-xl", "--on", "8xh100", "--over", "batch=64:128", "--policy", "fsdp"]

FOUND: dict[str, tuple[dict[str, bytes], list[str], str]] = {
    "npz that is no zip": ({"x.npz": b"PK\x03\x04rubbish", "mlp.json": MLP}, TRAIN, "data: 'x.npz' cannot be read"),
    "npz cut in the middle": (
        {"x.npz": npz(x=GOOD_Y, y=GOOD_Y)[:-30], "mlp.json": MLP}, TRAIN, "data: 'x.npz' cannot be read"),
    "npz whose header is no header": (
        {"x.npz": npz(x=b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((", y=GOOD_Y), "mlp.json": MLP}, TRAIN,
        "data: 'x.npz' cannot be read"),
    "npz with an array of 8 TB": (
        {"x.npz": npz(x=LIES, y=GOOD_Y), "mlp.json": MLP}, TRAIN, "data: 'x.npz' cannot be read"),
    "npz that holds objects": (
        {"x.npz": npz(x=npy([None, {}]), y=GOOD_Y), "mlp.json": MLP}, TRAIN, "data: 'x.npz' cannot be read"),
    "npz with a number instead of rows": (
        {"x.npz": npz(x=npy(3), y=npy(3)), "mlp.json": MLP}, TRAIN, "data: 'x.npz' cannot be read"),
    "script that sources a link in a circle": (
        {"a.sh": b". loop\nsource pipe\nrun --a 1\n"}, ["check", "a.sh"], "is of no known program"),
    "plan nested without end": ({"plan.json": DEEP}, PLAN, "plan: 'plan.json' is not JSON"),
    "plan that is not text": ({"plan.json": b"\xff\xfe{}"}, PLAN, "plan: 'plan.json' is not JSON"),
    "plan whose policy is a list": ({"plan.json": b'{"policy": [1]}'}, PLAN, "policy"),
    "plan with an integer beyond int64": (
        {"plan.json": b'{"policy": {"tp": 99999999999999999999999}, "model": "gpt2-xl", "cluster": "8xh100"}'}, PLAN,
        "policy"),
    "plan whose list of the best is a number": ({"plan.json": b'{"best": 3}'}, PLAN, "lists no policy"),
    "topology without an element": ({"t.xml": b"<?xml version='1.0'?>"}, XML, "from: "),
    "topology nested without end": ({"t.xml": b"<system>" * 5000}, XML, "from: "),
    "topology with an encoding nobody has": (
        {"t.xml": b"<?xml version='1.0' encoding='x-none'?><system/>"}, XML, "from: "),
    "trace with a time no float can hold": (
        {"t.json": b'{"traceEvents": [{"cat": "kernel", "dur": 1' + b"0" * 400 + b"}]}"},
        ["calibrate", "--from", "t.json", "--out", "new.toml"], "no GPU kernel in the trace"),
    "pair with a rate no float can hold": (
        {"p.json": b'[{"a": "x", "b": "y", "gb_per_s": 1' + b"0" * 400 + b"}]"},
        ["fabric", "expect", "--on", "dgx-h100:16", "--pairs", "p.json"], "pairs: p.json, entry 1"),
    "plan with a shard group beyond int64": (
        {"plan.json": b'{"policy": {"shard_group": 99999999999999999999999}, "model": "gpt2-xl", "cluster": "8xh100"}'},
        PLAN, "shard_group"),
    "run that is a hole": ({}, ["why", "hole.json"], "run: 'hole.json' is larger than"),
    "run that is a device": ({}, ["why", "/dev/zero"], "run: there is no file '/dev/zero'"),
    "run whose trace nests without end": (
        {"t.json": b'{"traceEvents": [' + DEEP}, ["why", "t.json"], "run: t.json has neither kernels nor operators"),
    "run whose pickle asks for a program": (
        {"dump_0": b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."}, ["why", "dump_0"], "it asks for os.system"),
    "run that is half a database": (
        {"r.sqlite": b"SQLite format 3\x00" + bytes(80)}, ["why", "r.sqlite"], "r.sqlite cannot be read as an export"),
    "log into a pipe nobody reads": ({"mlp.json": MLP}, [*TRAIN[:-2], "--log", "pipe"], "is a pipe; write a file"),
    "log behind a text of the user": ({"mlp.json": MLP}, [*TRAIN[:-2], "--log", "theirs.svg"], "holds no steps"),
    "table that is a hole": ({}, ["validate", "--data", "hole.json"], "data: 'hole.json' is larger than"),
    "table that is a folder": ({}, ["validate", "--data", "folder"], "data: there is no file 'folder'"),
    "table that never ends": ({}, ["validate", "--data", "/dev/zero"], "data: there is no file '/dev/zero'"),
    "table whose lines end as on old machines": (
        {"runs.csv": b"source,model,gpus\rx,gpt2-xl,8\r"}, ["validate", "--data", "runs.csv"], "is not a well"),
    "routing that is a hole": (
        {}, ["search", "mixtral-8x7b", "--on", "dgx-h100:16", "--ep", "8", "--problem", "experts", "--routing",
             "hole.json"], "routing: 'hole.json' is larger than"),
    "model behind a loop of links": ({}, ["catalog", "models", "./loop"], "there is no file 'loop'"),
    "script nested without end": ({"s.py": b"(" * 5000}, ["trace", "s.py", "--world", "1"], "s.py is not Python"),
    "csv over a loop of links": ({}, [*SWEEP, "--csv", "loop"], "csv: 'loop' cannot be written"),
    "csv over a file of the user": ({}, [*SWEEP, "--csv", "theirs.svg"], "was not written by shardwise"),
    "csv into a full device": ({}, [*SWEEP, "--csv", "/dev/full"], "'/dev/full' cannot be written"),
    "csv into a pipe nobody reads": ({}, [*SWEEP, "--csv", "pipe"], "csv: 'pipe' cannot be written"),
}  # fmt: skip
