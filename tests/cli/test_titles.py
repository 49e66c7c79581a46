"""A title stands on a line of its own, however narrow the table below it."""

import pytest

from shardwise.show.cli._output import print_facts, print_table


@pytest.mark.parametrize("show", [
    lambda title: print_table(title, ("a", "b"), [("x", 1)]), lambda title: print_facts(title, [("x", 1)]),
], ids=["table", "facts"])  # fmt: skip
def test_a_title_wider_than_its_table_does_not_break(show, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    title = "llama-3-70b on dgx-h100:64: layers of 4 stages"
    show(title)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].rstrip() == title
    assert max(map(len, lines[1:])) < len(title)
    show("long words " * 12)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
