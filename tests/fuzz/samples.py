"""One right file of every kind that can be read, and paths that are no files at all."""

import contextlib
import hashlib
import io
import json
import os
import pickle
import stat
import sys
import tempfile
from pathlib import Path

import numpy as np

from formats.public import PUBLIC
from shardwise import catalog
from shardwise.run.preflight.facts import encoded
from shardwise.show.cli import main

ROOT = Path(__file__).resolve().parents[2]
LINKS = """gpus: [h0, h1, h2, h3]
nodes: [[h0, h1], [h2, h3]]
switches: [leaf]
links:
  - {from: [h0, h1, h2, h3], to: leaf, bandwidth: 400 Gbps, latency: 1 us}
"""
PRODUCTS = """inputs: {x: 64}
ops:
  - {name: n, op: norm, from: x}
  - {name: up, op: matrix, from: n, out: 256}
  - {name: down, op: matrix, from: up, out: 64}
"""
SCRIPT = (
    "def build():\n    return 1, 2\n\n\ndef batch():\n    return 3\n\n\ndef step(model, optimizer, batch):\n    pass\n"
)
THEIRS = b"the user's own\n"


CLOCKS = """timestamp, index, name, clocks.current.sm [MHz], utilization.gpu [%], clocks_event_reasons.active
2026/09/11 04:19:42.990, 0, NVIDIA H100 80GB HBM3, 1755 MHz, 98 %, 0x0000000000000004
2026/09/11 04:19:42.994, 1, NVIDIA H100 80GB HBM3, 1305 MHz, 97 %, 0x0000000000000040
"""


def _printed(*words: str) -> bytes:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return out.getvalue().encode()


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.zeros((20, 16), np.uint8), y=np.arange(20) % 4)
    return file.getvalue()


def _sqlite() -> bytes:
    import nsys_files

    with tempfile.TemporaryDirectory() as folder:
        return nsys_files.export(Path(folder) / "job.sqlite").read_bytes()


def launch_files() -> dict[str, bytes]:
    """One of each target, and one that sources another."""
    found = {f"{file.target}{Path(file.name).suffix}": file.text.encode() for file in reversed(PUBLIC)}
    return found | {"sourcing.sh": b"source ./megatron.sh\n. ./megatron.sh\nsource pipe\n. loop\nrun --a $TP\n"}


def samples() -> dict[str, bytes]:
    """By file name."""
    sys.path[:0] = [str(ROOT / "tests" / room) for room in ("importers", "diagnose", "preflight")]
    import foreign_files
    import log_samples
    import made_node
    import made_traces
    import site_files
    import topology_files

    fsdp = ["llama-3-8b", "--on", "8xh100", "--zero", "3", "--json"]
    published = (ROOT / "src/shardwise/catalog/measured/published.csv").read_bytes().splitlines(keepends=True)
    found = {
        "nccl.txt": foreign_files.TEXT.encode(), "nccl.json": json.dumps(foreign_files.JSON).encode(),
        "titan.log": foreign_files.TITAN.encode(), "megatron.log": foreign_files.MEGATRON.encode(),
        "trace.json": json.dumps(foreign_files.trace()).encode(), "topology.xml": topology_files.nccl_xml().encode(),
        "matrix.txt": topology_files.matrix().encode(), "pairs.csv": b"a,b,gb_per_s\nn0,n1,40\nn1,n2,3\n",
        "pairs.json": b'[{"a": "n0", "b": "n1", "gb_per_s": 40}]', "hosts.txt": b"node-0\nnode-1\n# no\nnode-2\n",
        "runs.csv": b"".join(published[:6]), "config.json": (ROOT / "docs/tiny-llama.json").read_bytes(),
        "mlp.json": json.dumps({"model_type": "mlp", "layer_sizes": [16, 8, 4]}).encode(),
        "site.yaml": _printed("catalog", "clusters", "dgx-h100:64", "--yaml"), "links.yaml": LINKS.encode(),
        "products.yaml": PRODUCTS.encode(), "plan.json": _printed("plan", *fsdp[:3], "--json"),
        "estimate.json": _printed("estimate", *fsdp), "examples.npz": _npz(), "script.py": SCRIPT.encode(),
        "routing.txt": b"0,1\n2,3\n1,7\n", "text.txt": b"some words to train on\n" * 400,
        "tokenizer.json": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
        **{f"site-{name}": text.encode() for name, text in site_files.FORMS.items()},
        "prices.toml": (ROOT / "src/shardwise/catalog/network_prices.toml").read_bytes(),
    }  # fmt: skip
    found |= {f"{name.split()[0]}-run.log": log_samples.log_of(name, [4.0, 9.0, 4.0, 4.1] * 6).encode()
              for name in log_samples.SAMPLES}  # fmt: skip
    step = made_traces.events_of(made_traces.Made(steps=2, gaps=5.0, data=9.0), 0)
    found |= {
        "steps.csv": (ROOT / "docs/steps.csv").read_bytes(), "rank0.json": json.dumps({"traceEvents": step}).encode(),
        "dump_0": pickle.dumps({"pg_config": {}, "pg_status": {}, "entries": [{"collective_seq_id": 1}]}, protocol=2),
        "job.sqlite": _sqlite(), "clocks.csv": CLOCKS.encode(), "run.pftrace": b"\x0a\x04\x08\x01\x10\x02" * 20,
        "train.sh": b"torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n",
    }  # fmt: skip
    found["facts.json"] = encoded(made_node.Made().recorded().facts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(found["trace.json"])
        _printed("calibrate", "--from", str(path), "--out", str(Path(folder) / "profile.toml"), "--on", "8xh200")
        found["profile.toml"] = (Path(folder) / "profile.toml").read_bytes()
    found |= launch_files()
    for kind in catalog.KINDS:
        name = catalog.names(kind)[0]
        folder = ROOT / "src/shardwise/catalog" / kind
        path = next(folder.glob(f"{name}.*"))
        found[f"{kind}{path.suffix}"] = path.read_bytes()
    return found


def folders() -> dict[str, dict[str, bytes]]:
    """The same of folders: a checkpoint, by the names of its files."""
    content = bytes(range(64))
    block = {"tensor": "w", "offsets": [0], "sizes": [16], "file": "rank-00000.bin", "at": 0, "bytes": 64,
             "sha256": hashlib.sha256(content).hexdigest()}  # fmt: skip
    manifest = {
        "form": "shardwise checkpoint 1", "step": 1, "saved": "2026-01-02T03:04:05+00:00", "ranks": 1,
        "of": {"model": {"layers": 2}, "seed": 0}, "tensors": {"w": {"dtype": "float32", "shape": [16]}},
        "files": {"rank-00000.bin": 64}, "blocks": [block],
    }  # fmt: skip
    lock = b'{"pid": 1, "host": "elsewhere", "since": "2026-01-02T03:04:05+00:00", "run": ""}'
    step = "step-00000001"
    return {"saved": {
        f"{step}/manifest.json": sealed(json.dumps(manifest).encode()), f"{step}/rank-00000.bin": content,
        ".lock": lock,
    }}  # fmt: skip


def sealed(manifest: bytes) -> bytes:
    """As a manifest is written: with its own checksum, which says nothing of who wrote it."""
    checksum = hashlib.sha256(manifest).hexdigest().encode()
    return b'{"sha256":"' + checksum + b'","manifest":' + manifest + b"}"


def write_folder(path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)


SPECIAL = {
    "device": "/dev/zero", "full": "/dev/full", "null": "/dev/null", "terminal": "/dev/tty", "folder": "folder",
    "pipe": "pipe", "loop": "loop", "nowhere": "no/such/file", "hole": "hole.json", "theirs": "theirs.svg",
    "dangling": "dangling", "secret": "/proc/self/mem", "long": "n" * 300, "nothing": "", "here": ".", "root": "/",
}  # fmt: skip
"""paths that are no ordinary file; relative ones are made in the folder of the run"""
HOLE = 2**40
"""bytes of a file that takes no room on the disk"""


def make_special(folder: Path) -> None:
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("gone/away")
    with (folder / "hole.json").open("wb") as file:
        file.truncate(HOLE)
    (folder / "theirs.svg").write_bytes(THEIRS)


def replaced(folder: Path) -> str:
    """Which of them is no longer what it was, if any."""
    still = {
        "/dev/full": stat.S_ISCHR(os.stat("/dev/full").st_mode),
        "pipe": stat.S_ISFIFO((folder / "pipe").lstat().st_mode),
        "loop": (folder / "loop").is_symlink(), "dangling": (folder / "dangling").is_symlink(),
        "hole.json": (folder / "hole.json").stat().st_size == HOLE,
        "theirs.svg": (folder / "theirs.svg").read_bytes() == THEIRS, "folder": (folder / "folder").is_dir(),
    }  # fmt: skip
    return next((name for name, same in still.items() if not same), "")
