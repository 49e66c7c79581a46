"""The frame: start-up cost, exit codes, pipes, colours, unknown words."""

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from shardwise.show.cli import _frame, _installed, main
from shardwise.show.cli._installed import ENTRY_POINTS
from shardwise.show.cli._verbs import VERBS, import_path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def launched(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80", **env}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60, check=False)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return launched([sys.executable, "-m", "shardwise", *arguments], **env)


def test_every_registered_verb_exists():
    for verb in VERBS:
        module, function = import_path(verb).split(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_help_names_every_verb_and_loads_none_of_them():
    found = run("--help-all")
    assert found.returncode == 0
    assert all(verb in found.stdout for verb in VERBS)
    code = """
import sys
from shardwise.show.cli import main
main(["--help"])
loaded = {"numpy", "yaml", "shardwise.spec", "shardwise.spec.arch", "shardwise.catalog"} & set(sys.modules)
print(loaded, file=sys.stderr)
"""
    assert launched([sys.executable, "-c", code]).stderr == "set()\n"


def cpu_seconds(code: str) -> float:
    """Processor time of a fresh interpreter; the least of three, since the machine is shared."""
    measure = "\nimport sys, time\nsys.stderr.write(str(time.process_time()))"
    return min(float(launched([sys.executable, "-c", code + measure]).stderr) for _ in range(3))


def test_start_up_costs_little_more_than_the_libraries_that_print_it():
    libraries = cpu_seconds("import cyclopts, rich.console")
    assert cpu_seconds("from shardwise.show.cli import main; main(['--help'])") < 2.5 * libraries
    assert cpu_seconds("import shardwise") < 0.5 * libraries


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["modles"], "error: 'modles' is not a verb; did you mean 'models'?\n"),
        (["--versoin"], "error: '--versoin' is not an option of shardwise itself; did you mean '--version'?\n"),
        (["catalog", "gpus", "h1000"], "error: gpu 'h1000' is unknown; did you mean 'h100'?\n"),
    ],
)
def test_unknown_words(arguments, message):
    found = run(*arguments)
    assert (found.returncode, found.stdout, found.stderr) == (2, "", message)


def test_a_verb_of_another_distribution_says_how_it_is_installed(capsys, monkeypatch):
    monkeypatch.setattr(_installed, "installed_verbs", dict)
    monkeypatch.setattr(_frame, "app", _frame._build())
    assert main(["lab", "list"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "pip install ./lab" in err


def test_another_distribution_cannot_replace_a_verb(monkeypatch):
    points = (EntryPoint("plan", "theirs:plan", ENTRY_POINTS), EntryPoint("ours", "theirs:ours", ENTRY_POINTS))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    assert _installed.installed_verbs.__wrapped__() == {"ours": "theirs:ours"}


def test_nothing_at_all_prints_the_help():
    found = run()
    assert found.returncode == 0
    assert "estimate" in found.stdout


def test_version_is_one_line(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["catalog", "models"], ["catalog", "models", "--json"], ["--help"]], ids=" ".join
)
def test_a_reader_that_leaves_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "shardwise", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(SOURCE)}
    found = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, env=variables, timeout=60, check=False
    )
    os.close(writer)
    assert (found.returncode, found.stderr) == (0, "")


def test_colours_only_where_they_are_wanted():
    assert "\x1b[" not in run("catalog", "gpus").stdout
    assert "\x1b[" in run("catalog", "gpus", FORCE_COLOR="1").stdout
    assert "\x1b[3" not in run("catalog", "gpus", FORCE_COLOR="1", NO_COLOR="1").stdout


def test_a_terminal_without_unicode_still_gets_its_page():
    found = run("catalog", "gpus", PYTHONIOENCODING="ascii")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.isascii()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["plan", "llama-3-8b", "--on", "8xh100", "--risk", "abc"], "--risk.*abc.*; write a number"),
        (["plan", "llama-3-8b", "--on", "8xh100", "--top", "x"], "--top.*x.*; write a whole number"),
        (
            ["plan", "llama-3-8b", "--on", "8xh100", "--stack", "software="],
            "'software=' names no program; write",
        ),
    ],
)
def test_what_is_no_number_or_no_name_says_what_to_write(words, wanted, capsys):
    assert main(words) == 2
    assert re.search(wanted, capsys.readouterr().err)
