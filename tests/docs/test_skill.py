"""The page for agents says what is true: its commands run, its keys are there."""

import json
import re
import shlex
from pathlib import Path

import pytest

from shardwise.show.cli import main
from shardwise.show.cli._verbs import VERBS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "skill" / "SKILL.md").read_text(encoding="utf-8")
COMMANDS = [line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_it_has_commands_and_a_head():
    assert len(COMMANDS) >= 6
    assert PAGE.startswith("---\nname: shardwise\ndescription: ")
    assert len(PAGE.splitlines()) < 80


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *words = shlex.split(command)
    assert words[0] in VERBS
    assert main(words) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict | list)


def test_the_keys_it_names_are_there(capsys):
    assert main(["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--json"]) == 0
    assert {"step_s", "peak_bytes", "error_range", "notes", "assumptions"} <= set(json.loads(capsys.readouterr().out))
    assert main(["plan", "llama-3-8b", "--on", "8xh100", "--json"]) == 0
    assert {"recommended", "best", "notes"} <= set(json.loads(capsys.readouterr().out))
