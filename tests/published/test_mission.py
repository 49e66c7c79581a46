"""Statements of the source documents as commands: one row of each verb here, every row in benchmarks/mission.py."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _mission_rows import MissionRow, Said, faults, rows

EVERY = rows()
QUICK = ("answers", "calc", "catalog", "estimate", "preflight", "sync", "watch")


def of_each_verb() -> list[MissionRow]:
    """The first quick row of each verb and its second word."""
    found: dict[str, MissionRow] = {}
    for row in EVERY:
        words = row.command.split()
        if words and words[0] in QUICK and not row.slow:
            found.setdefault(" ".join(words[: 1 + (words[0] in ("calc", "catalog", "sync"))]), row)
    return list(found.values())


def test_every_statement_has_a_command_and_something_expected():
    assert len(EVERY) == len({row.id for row in EVERY}) == 369
    for row in EVERY:
        assert row.command, row.id
        assert row.text or (row.value and (row.expect is not None or row.above is not None)), row.id


@pytest.mark.parametrize("row", of_each_verb(), ids=lambda row: row.id)
def test_a_statement_is_answered_as_expected(row):
    assert faults([row], {}) == {}


def test_another_answer_is_no_match():
    row = next(row for row in EVERY if row.expect is not None and row.value)
    said = Said(0, "{}", "", {})
    assert row.wrong(said)
    assert row.wrong(Said(2, "", "error: no such thing", None)) == "error: no such thing"
