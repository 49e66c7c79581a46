"""Files full of secrets, escapes and endless words, through every verb that repeats words of a file."""

import html
import json
import random
import re
import string

import pytest

from shardwise.screen import HIDDEN
from shardwise.show.cli import main

DRAW = random.Random(7)
SECRET = "".join(DRAW.choice(string.ascii_lowercase) for _ in range(12))
RANDOM = "".join(DRAW.choice(string.ascii_letters + string.digits) for _ in range(40)) + "aB3"
HEX = "".join(DRAW.choice("0123456789abcdef") for _ in range(40))
ESCAPES = "\x1b[2J\x1b]0;t\x07\x9b31m\u202edrow\x00"
LONG = "A" * 5000
OPTIONS = (
    f"--wandb-key {SECRET} --comet-key={SECRET} --passphrase '{SECRET} {SECRET}' --pw {SECRET} --key {SECRET} "
    f"--auth 'Bearer {RANDOM}' --hook https://hooks.slack.com/services/T1/B2/{RANDOM} --odd {RANDOM} --run {HEX} "
    f"--other 'a{ESCAPES.replace(chr(0), '')}b' --long {LONG} --{LONG} 1"
)
SHELL = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size {tp} --pipeline-model-parallel-size 2"
SHELL += " --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 --bf16 --use-distributed-optimizer "
LOG = f"""rank 0: starting with WANDB_API_KEY={SECRET} Authorization: Bearer {RANDOM}{ESCAPES}
[rank3]: torch.OutOfMemoryError: CUDA out of memory. wandb_key={SECRET} {ESCAPES} https://me:{SECRET}@host {LONG}
"""
CONFIG = {"model_type": f"llama{ESCAPES}", "hidden_size": f"https://me:{SECRET}@host {LONG}", "num_hidden_layers": 2}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(SHELL.format(tp=2) + OPTIONS)
    (tmp_path / "bad.sh").write_text(SHELL.format(tp=f"'{RANDOM} {ESCAPES[:-1]} {LONG}'") + OPTIONS)
    (tmp_path / "titan.toml").write_text(
        f'[model]\nname = "llama3"\n[parallelism]\ntensor_parallel_degree = 2\n[wandb]\nkey = "{SECRET}"\n'
        f'[odd]\n"auth" = "Bearer {RANDOM}"\nlong = "{LONG}"\nrandom = "{RANDOM}"\nescapes = "a\\u001b[2Jb\\u202ec"\n'
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text(LOG)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    raising = f"raise RuntimeError('wandb_key={SECRET} Bearer {RANDOM} \\x1b[2J\\x9b\\u202e' + 'A' * 5000)"
    (tmp_path / "script.py").write_text(
        f"def build():\n    {raising}\ndef batch():\n    return 1\ndef step(model, batch):\n    return 1\n"
    )
    return tmp_path


CHECK = ["--model", "llama-3-8b", "--on", "16xh100"]
LINES = {
    "check": ["check", "run.sh", *CHECK], "check alone": ["check", "run.sh"], "check toml": ["check", "titan.toml"],
    "fix": ["check", "run.sh", *CHECK, "--fix", "--out", "fixed.sh"], "refused": ["check", "bad.sh", *CHECK],
    "doctor": ["doctor", "run"], "why": ["why", "run/train.log", "--on", "8xh100", "--model", "llama-3-8b"],
    "watch": ["watch", "run", "--once"], "model": ["estimate", "config.json", "--on", "8xh100"],
    "export": ["export", "config.json", "--on", "8xh100", "--to", "megatron"], "trace": ["trace", "script.py"],
    "auto": ["auto", "script.py", "--on", "8xh100"], "several": ["auto", "script.py", "run.sh", "--on", "8xh100"],
    "prove": ["prove", "script.py", "fsdp=2"],
}  # fmt: skip


def judged(text: str, form: str) -> None:
    assert SECRET not in text
    assert RANDOM[-12:] not in text
    assert HEX not in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), form
    assert "A" * 201 not in text.replace("\n", "")


@pytest.mark.parametrize("form", ["text", "json", "html"])
@pytest.mark.parametrize("line", LINES)
def test_nothing_secret_or_obeyed_is_shown(folder, capsys, line, form):
    more = {"text": [], "json": ["--json"], "html": ["--html", "page.html"]}[form]
    code = main([*LINES[line], *more])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2), err
    judged(out, line)
    judged(err, line)
    if (folder / "page.html").is_file():
        judged(html.unescape((folder / "page.html").read_text()), line)
    if form == "json" and code != 2:
        json.loads(out)


@pytest.mark.usefixtures("folder")
def test_check_says_where_something_was_hidden(capsys):
    assert main(["check", "run.sh", "--json"]) == 0
    left = json.loads(capsys.readouterr().out)
    words = json.dumps(left)
    for name in ("wandb_key", "comet_key", "passphrase", "pw", "key", "auth"):
        assert f"{name} {HIDDEN}" in words, name
