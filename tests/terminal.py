"""What the tests of verbs share: a terminal of 80 columns, and a verb's output."""

import pytest

from shardwise.cli import main


@pytest.fixture
def narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys, arguments, code=0):
    assert main(arguments) == code
    found = capsys.readouterr()
    assert found.err == ""
    return found.out
