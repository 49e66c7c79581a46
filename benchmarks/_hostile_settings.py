"""Settings, models, plans, tables and folders made to hang, to fill the memory or to run something."""

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from _hostile_files import CONFIG, HUGE, JSONS, MARK, MIB, STEP, HostileFile, RunsCode, holds, hole, packed

TRAIN = "run mlp.json --on 1xh100 --device cpu --data F"


def _npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return file.getvalue()


def _npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(values), allow_pickle=True)
    return file.getvalue()


def _folder(fill: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        fill(path)

    return make


def _many(path: Path) -> None:
    for number in range(100_000):
        (path / f"{number}.log").touch()


def _ranks(count: int, content: bytes, files: int = 0) -> Callable[[Path], None]:
    """Records of so many ranks, under so many more names."""

    def fill(path: Path) -> None:
        for rank in range(count):
            (path / f"rank-{rank:05}.jsonl").write_bytes(b'{"head":{"rank":%d}}\n' % rank + content)
        for number in range(count, count + files):
            os.link(path / f"rank-{number % count:05}.jsonl", path / f"rank-{number:05}.jsonl")

    return fill


def _odd_names(path: Path) -> None:
    for name in ("line\nbreak.log", "\x1b[31mred.log", "\udcff.log", "n" * 250, "-rf", "${HOME}"):
        (path / name).write_text("no run\n")
    os.mkfifo(path / "pipe.log")
    (path / "loop.log").symlink_to("loop.log")
    (path / "up").symlink_to("..")
    (path / "zero.log").symlink_to("/dev/zero")


def _deep_folder(path: Path) -> None:
    here = os.open(path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=here)
        here, before = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(before)
    os.close(here)


def _model(fill: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "config.json").write_text(json.dumps(CONFIG))
        fill(path)

    return make


def _header(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


SHAPE = (
    b'{"w": {"dtype": "F32", "shape": [' + b",".join([b"9007199254740991"] * 500_000) + b'], "data_offsets": [0, 4]}}'
)
LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(12))
SHELL = (
    "A0=xxxxxxxxxx\n" + "".join(f"A{n + 1}=$A{n}$A{n}$A{n}$A{n}\n" for n in range(40)) + "python train.py --tp $A40\n"
)

SETTINGS: tuple[HostileFile, ...] = (
    HostileFile(
        "topology: entities",
        "t.xml",
        "catalog clusters --from F",
        holds(lambda: f'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY l0 "ha">{LAUGHS}]><system>&l12;</system>'.encode()),
    ),
    HostileFile("topology: deep", "t.xml", "catalog clusters --from F", holds(lambda: b"<system>" * 100_000)),
    HostileFile(
        "topology: 10**9 nodes in a line",
        "topology.conf",
        "place plan.json --topology F",
        holds(lambda: b"SwitchName=leaf Nodes=n[0-999999999]\n"),
    ),
    HostileFile(
        "topology: names in brackets",
        "topology.conf",
        "place plan.json --topology F",
        holds(lambda: b"SwitchName=leaf Nodes=" + b"n[0-99]" * 12 + b"\n"),
    ),
    HostileFile(
        "topology: 90 MiB of []",
        "links.json",
        "place plan.json --topology F",
        holds(lambda: b'{"links": [' + b"[]," * (90 * MIB // 3) + b"[]]}"),
        large=True,
    ),
    HostileFile(
        "hosts: 100 MiB of names",
        "hosts.txt.gz",
        "fabric expect --on dgx-h100:16 --hosts F",
        packed((b"n%d\n" * 99_999, 200)),
    ),
    HostileFile(
        "cluster: aliases",
        "c.yaml",
        "catalog clusters F",
        holds(
            lambda: (
                b"a0: &a0 [x]\n"
                + b"".join(b"a%d: &a%d [%s]\n" % (n + 1, n + 1, b",".join([b"*a%d" % n] * 9)) for n in range(20))
            )
        ),
    ),
    HostileFile("cluster: deep", "c.yaml", "catalog clusters F", holds(lambda: b"[" * 900_000)),
    HostileFile("cluster: 1 MB of dashes", "c.yaml", "catalog clusters F", holds(lambda: b"- " * 500_000)),
    HostileFile("cluster: 1 MB of question marks", "c.yaml", "catalog clusters F", holds(lambda: b"? " * 500_000)),
    HostileFile("cluster: 1 MB in one line", "c.yaml", "catalog clusters F", holds(lambda: b"a: " + b"b " * 500_000)),
    HostileFile(
        "cluster: a tag",
        "c.yaml",
        "catalog clusters F",
        holds(lambda: b"!!python/object/apply:os.mkdir [%syaml]\n" % MARK.encode()),
    ),
    HostileFile(
        "settings: a tag",
        "c.yaml",
        "check F",
        holds(lambda: b"a: !!python/object/apply:os.mkdir [%syaml]\n" % MARK.encode()),
    ),
    HostileFile("settings: 1 MB of flow", "c.yaml", "check F", holds(lambda: b"{a: " * 250_000)),
    HostileFile("settings: TOML, deep", "c.toml", "check F", holds(lambda: b"a = " + b"[" * 500_000)),
    HostileFile("settings: TOML, dotted", "c.toml", "check F", holds(lambda: b"a" + b".a" * 400_000 + b" = 1\n")),
    HostileFile(
        "settings: TOML, numbers", "c.toml", "check F", holds(lambda: b"a = " + HUGE[:900_000] + b"\nb = 1e999999\n")
    ),
    HostileFile(
        "profile: TOML, numbers",
        "p.toml",
        "estimate gpt2-xl --on 8xh100 --profile F",
        holds(lambda: b"version = " + HUGE),
    ),
    HostileFile(
        "profile: TOML, dotted",
        "p.toml",
        "estimate gpt2-xl --on 8xh100 --profile F",
        holds(lambda: b"a" + b".a" * 900_000 + b" = 1\n"),
    ),
    HostileFile("script: variables of variables", "run.sh", "check F", holds(SHELL.encode)),
    HostileFile("script: 1 MB of ${", "run.sh", "check F", holds(lambda: b"python t.py --a " + b"${A:-" * 200_000)),
    HostileFile("script: 1 MB of $(", "run.sh", "check F", holds(lambda: b"python t.py --a " + b"$(" * 400_000)),
    HostileFile("script: 1 MB of options", "run.sh", "check F", holds(lambda: b"python t.py " + b"--a 1 " * 170_000)),
    HostileFile(
        "script: a call",
        "run.sh",
        "check F",
        holds(lambda: f"A=$(mkdir {MARK}shell)\n`mkdir {MARK}tick`\ntorchrun t.py --tp $A\n".encode()),
    ),
    *(
        HostileFile(f"model: {what}", "config.json", "catalog models F", holds(lambda c=content: c))
        for what, content in JSONS
    ),
    HostileFile(
        "model: a field of 4,000 digits",
        "config.json",
        "catalog models F",
        holds(lambda: json.dumps(CONFIG).replace("64", "9" * 4000, 1).encode()),
    ),
    HostileFile(
        "weights: a pipe",
        "m",
        "catalog models F/config.json",
        _model(lambda path: os.mkfifo(path / "model.safetensors")),
    ),
    HostileFile(
        "weights: a pipe as index",
        "m",
        "catalog models F/config.json",
        _model(lambda path: os.mkfifo(path / "model.safetensors.index.json")),
    ),
    HostileFile(
        "weights: half a million axes",
        "m",
        "catalog models F/config.json",
        _model(lambda path: (path / "model.safetensors").write_bytes(_header(SHAPE))),
    ),
    HostileFile(
        "weights: a header of 2**63",
        "m",
        "catalog models F/config.json",
        _model(lambda path: (path / "model.safetensors").write_bytes(_header(b"{}", 2**63))),
    ),
    HostileFile(
        "weights: an index of {}",
        "m",
        "catalog models F/config.json",
        _model(
            lambda path: (path / "model.safetensors.index.json").write_bytes(
                b'{"weight_map":{"a":[' + b"{}," * (20 * MIB // 3) + b"{}]}}"
            )
        ),
    ),
    HostileFile(
        "plan: 60 MiB of {}",
        "plan.json",
        "export F --to megatron",
        holds(lambda: b'{"best": [' + b'{"":0},' * (60 * MIB // 7) + b"{}]}"),
        large=True,
    ),
    *(
        HostileFile(f"plan: {what}", "plan.json", "export F --to megatron", holds(lambda c=content: c))
        for what, content in JSONS
    ),
    HostileFile(
        "table: 60 MiB of cells",
        "runs.csv",
        "validate --data F",
        holds(lambda: b"source,model,gpu,gpus,seq\n" + b"a," * (30 * MIB)),
        large=True,
    ),
    HostileFile(
        "lengths: 15 MiB of digits",
        "lengths.txt",
        "estimate gpt2-xl --on 8xh100 --lengths F",
        holds(lambda: b"9" * (15 * MIB)),
    ),
    HostileFile(
        "routing: a line of 15 MiB",
        "routing.txt",
        "search mixtral-8x7b --on dgx-h100:16 --ep 8 --problem experts --routing F",
        holds(lambda: b"1," * (7 * MIB)),
    ),
    HostileFile(
        "examples: zeros of 10 GB",
        "x.npz",
        TRAIN,
        holds(lambda: _npz(x=_npy(np.zeros(400 * MIB, np.uint8)), y=_npy([1]))),
        large=True,
    ),
    HostileFile(
        "examples: objects", "x.npz", TRAIN, holds(lambda: _npz(x=_npy(np.array([RunsCode()], object)), y=_npy([1])))
    ),
    *(
        HostileFile(f"{kind} as {name}", name, line, make)
        for kind, make in (
            ("a pipe", os.mkfifo),
            ("a loop", lambda path: path.symlink_to(path.name)),
            ("a hole", hole()),
            ("zeros without end", lambda path: path.symlink_to("/dev/zero")),
        )
        for name, line in (
            ("run.log", "why F"),
            ("run.log", "doctor ."),
            ("rank-00000.jsonl", "doctor ."),
            ("config.json", "catalog models F"),
            ("plan.json", "export F --to megatron"),
            ("c.yaml", "check F"),
            ("p.toml", "estimate gpt2-xl --on 8xh100 --profile F"),
        )
        if not (kind == "a pipe" and line == "why F")
    ),
    HostileFile("folder: 100,000 files", "many", "why F", _folder(_many), large=True),
    HostileFile("folder: 100,000 files", "many", "doctor F", _folder(_many), large=True),
    *(
        HostileFile(f"records: {what}", "ranks", line, _folder(fill), large=True)
        for what, fill in (
            ("40 ranks of 80 MB", _ranks(40, STEP % (b"999," * (2 * MIB) + b"9"))),
            ("99,000 files of 4 MiB", _ranks(3, (STEP % b"9") * (MIB // 10), 99_000)),
        )
        for line in ("watch F --once", "doctor F")
    ),
    HostileFile("folder: odd names, pipes, loops", "odd", "why F", _folder(_odd_names)),
    HostileFile("folder: odd names, pipes, loops", "odd", "doctor F", _folder(_odd_names)),
    HostileFile("folder: 400 deep", "deep", "doctor F", _folder(_deep_folder)),
)
