"""Exported scripts, started by bash with a stand-in for the launcher: what it is started with has every value in it."""

import os
import re
import shutil
import subprocess

import pytest

from shardwise.programs.formats import formats
from shardwise.show.cli import main

STAND_IN = """#!/bin/bash
printf '%s\\n' "$@" >> "$RECORD"
"""
JOB = ["llama-3-8b", "--on", "8xh100", "--zero", "0", "--micro", "1", "--global-batch", "8", "--seq", "2048",
       "--recompute", "none"]  # fmt: skip


@pytest.mark.parametrize("target", formats())
def test_a_script_starts_its_program_with_values(target, tmp_path, capsys):
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not on this machine")
    code = main(["export", *JOB, "--to", target, "--out", str(tmp_path / "launch")])
    assert code in (0, 1), capsys.readouterr().err
    text = (tmp_path / "launch" / "train.sh").read_text()
    (tmp_path / "bin").mkdir()
    for name in ("torchrun", "deepspeed", "accelerate", "python", "python3", "automodel", "primus-cli"):
        (tmp_path / "bin" / name).write_text(STAND_IN)
        (tmp_path / "bin" / name).chmod(0o755)
    given = {name: f"/{name.lower()}" for name in re.findall(r"\$\{(\w+):\?", text)}
    record = tmp_path / "record"
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.defpath}", "RECORD": str(record), **given}
    ended = subprocess.run([bash, "train.sh"], cwd=tmp_path / "launch", env=environment, timeout=30, check=False,
                           capture_output=True, text=True)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    words = record.read_text().splitlines()
    assert len(words) >= 3
    assert not [word for word in words if "${" in word]
    assert all(any(value in word for word in words) for value in given.values())
