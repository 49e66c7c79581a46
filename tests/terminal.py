"""What the tests of verbs share: a terminal of 80 columns, and a verb's output."""

import re

import pytest

from shardwise.show.cli import main

PROGRESS = re.compile(r", after \d+ s$")


@pytest.fixture
def narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys, arguments, code=0):
    assert main(arguments) == code
    found = capsys.readouterr()
    # on a busy machine anything may take so long that it says how far it is
    assert [line for line in found.err.splitlines() if not PROGRESS.search(line)] == []
    return found.out


def refused(capsys, arguments, cure):
    """Bad input: exit code 2, nothing on stdout, one line that says what to write."""
    assert main(arguments) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1
    assert cure in found.err
