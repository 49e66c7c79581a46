"""Folders that look like a run's and hold modules of a stranger, and launch files with secrets in them."""

import json
import os
import random
import string
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from _hostile_files import CONFIG, MARK
from _hostile_runs import RunOutcome, ended, run, started

FIRST = ("shardwise/", "json", "socket", "random", "typing")
"""what a child of shardwise imports before anything else"""
PLANTED = (
    "numpy", "msgspec", "yaml", "torch", "cyclopts", "rich", "sitecustomize", "usercustomize", "mcp", "uvicorn",
    "starlette", "shardwise_plugin", "train",
)  # fmt: skip
LOG = "".join(f"step: {n}  loss: 9.1  memory: 48.87GiB(51.44%)  tps: 7,000  mfu: 25.62%\n" for n in range(1, 20))
TRAIN = [
    "run",
    "config.json",
    "--on",
    "2xh100",
    "--device",
    "cpu",
    "--seq",
    "16",
    "--global-batch",
    "4",
    "--steps",
    "1",
]
LINES = (
    ["why", "."], ["doctor", "."], ["check", "train.sh"], ["catalog", "models", "config.json"],
    ["watch", "train.log", "--once"],
    ["plan", "gpt2-xl", "--on", "8xh100"], ["simulate", "gpt2-xl", "--on", "8xh100"], [*TRAIN, "--records", "records"],
    ["verify", *TRAIN[1:-2]],
)  # fmt: skip


def plant(folder: Path, names: tuple[str, ...]) -> None:
    """Modules, and packages where a name ends in a stroke."""
    for name in names:
        path = folder / (f"{name}__init__.py" if name.endswith("/") else f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        mark = folder / (MARK + name.rstrip("/"))
        path.write_text(f"import os\nos.makedirs({str(mark)!r}, exist_ok=True)\nraise ImportError('planted')\n")
    (folder / "train.log").write_text(LOG)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "train.sh").write_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n")


def planted_runs(folder: Path, temporary: Path) -> list[tuple[str, RunOutcome]]:
    """What was run, and how it ended."""
    return [(" ".join(line), run(line, folder, temporary)) for line in LINES]


def servers(folder: Path, temporary: Path) -> None:
    """Each is asked once and stopped."""
    _tool_call(folder, temporary)
    _page_question(folder, temporary)


def _tool_call(folder: Path, temporary: Path) -> None:
    """The protocol by hand: its package is one of those that are planted."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "hostile", "version": "1"}}
    lines = [
        {"id": 1, "method": "initialize", "params": client}, {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "why", "arguments": {"files": ["train.log"]}}},
    ]  # fmt: skip
    process = started(["mcp", "--root", "."], folder, temporary, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                      stderr=subprocess.DEVNULL)  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for line in lines:
        process.stdin.write(json.dumps({"jsonrpc": "2.0"} | line).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        if b'"id":2' in line.replace(b" ", b""):
            break
    process.stdin.close()
    process.stdout.close()
    ended(process, 5.0)


def _page_question(folder: Path, temporary: Path) -> None:
    port = 20_000 + os.getpid() % 20_000
    process = started(["serve", "--port", str(port)], folder, temporary, stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL)  # fmt: skip
    sent = json.dumps({"verb": "estimate", "first": ["gpt2-xl"], "options": {"on": "8xh100"}}).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/api/ask", sent, {"content-type": "application/json"})
    for _ in range(100):
        try:
            urllib.request.urlopen(asked, timeout=20).read()
            break
        except urllib.error.HTTPError:
            break
        except OSError:
            time.sleep(0.2)
    time.sleep(2.0)
    process.terminate()
    ended(process, 5.0)


def _word(draw: random.Random, letters: str = string.ascii_letters + string.digits, count: int = 32) -> str:
    return "".join(draw.choices(letters, k=count))


SHAPES: dict[str, Callable[[random.Random], str]] = {
    "passphrase": lambda draw: f"{_word(draw, string.ascii_lowercase, 9)}-{_word(draw, string.ascii_lowercase, 9)}",
    "key": _word, "hex": lambda draw: _word(draw, "0123456789abcdef", 40), "hf": lambda draw: f"hf_{_word(draw)}",
    "aws": lambda draw: f"AKIA{_word(draw, string.ascii_uppercase + string.digits, 16)}",
    "github": lambda draw: f"ghp_{_word(draw, count=36)}",
    "slack": lambda draw: f"https://hooks.slack.com/services/T{_word(draw, count=8)}/B0/{_word(draw, count=24)}",
}  # fmt: skip
OPTIONS = (
    ("--passphrase", "passphrase"), ("--wandb-key", "hex"), ("--comet-key", "key"), ("--key", "key"), ("--pw", "key"),
    ("--password", "passphrase"), ("--token", "hf"), ("--api-key", "github"),
    ("--webhook", "slack"), ("--notify", "slack"),
    ("--aws-access-key-id", "aws"), ("--run-id", "github"), ("--hub", "hf"),
)  # fmt: skip
FIELDS = (
    ("wandb.key", "hex"), ("wandb.api_key", "hex"), ("comet.key", "key"), ("hub.token", "hf"), ("s3.secret", "key"),
    ("headers.Authorization", "key"), ("notify.url", "slack"), ("db.passphrase", "passphrase"), ("s3.id", "aws"),
    ("note", "github"),
)  # fmt: skip


def launch_files(folder: Path, draw: random.Random) -> dict[str, list[str]]:
    """Of a launch script and three configurations: their names, and the secrets in each."""
    made = [(option, SHAPES[shape](draw)) for option, shape in OPTIONS]
    bearer, basic, exported = _word(draw), _word(draw), _word(draw)
    script = (
        f"export WANDB_API_KEY={exported}\nexport MY_AUTH='Authorization: Bearer {bearer}'\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 2 --hidden-size 64 "
        + " ".join(f"{option} {value}" for option, value in made)
        + f' --auth "Bearer {bearer}" --header "Authorization: Basic {basic}" --url https://me:{basic}@example.org/x\n'
    )
    (folder / "secrets.sh").write_text(script)
    found = {"secrets.sh": [value for _, value in made] + [bearer, basic, exported]}
    fields = [(name, SHAPES[shape](draw)) for name, shape in FIELDS]
    nested: dict[str, dict[str, str] | str] = {}
    for name, value in fields:
        section, _, key = name.rpartition(".")
        if section:
            inside = nested.setdefault(section, {})
            assert isinstance(inside, dict)
            inside[key] = f"Bearer {value}" if key == "Authorization" else value
        else:
            nested[key] = value
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}} | nested
    (folder / "secrets.json").write_text(json.dumps(settings, indent=1))
    (folder / "secrets.yaml").write_text(json.dumps({"tensor_model_parallel_size": 2} | nested))
    plain = {key: value for key, value in nested.items() if isinstance(value, str)}
    tables = {key: value for key, value in nested.items() if isinstance(value, dict)}
    lines = [f'{key} = "{value}"' for key, value in plain.items()]
    for key, value in tables.items():
        lines += [f"[{key}]", *(f'{name} = "{each}"' for name, each in value.items())]
    lines += ["[parallelism]", "tensor_parallel_degree = 2", '[model]\nname = "llama3"\nflavor = "8B"']
    (folder / "secrets.toml").write_text("\n".join(lines))
    return found | {f"secrets.{kind}": [value for _, value in fields] for kind in ("json", "yaml", "toml")}


TARGETS = {
    "secrets.sh": "megatron",
    "secrets.json": "deepspeed",
    "secrets.yaml": "megatron",
    "secrets.toml": "torchtitan",
}


def secret_lines(name: str) -> list[list[str]]:
    told = ["check", name, "--target", TARGETS[name], "--on", "8xh100", "--model", "llama-3-8b"]
    return [["check", name], told, [*told, "--json"]]


def shown(outcome: RunOutcome, secrets: list[str]) -> list[str]:
    """Which secrets stand in what was printed, whole or their second half: the first may be a known host."""
    text = (outcome.out + outcome.err).decode(errors="replace")
    joined = "".join(text.split())
    return [secret for secret in secrets if secret in joined or secret[-(len(secret) // 2) :] in joined]
