"""Whatever the tool prints as a code has an entry in the glossary."""

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from shardwise.estimate.memory import KINDS
from shardwise.estimate.time import PARTS
from shardwise.report.terminal import LETTERS, OFFLOAD_CODES
from shardwise.schedules import schedules
from shardwise.simulate.gantt import LETTERS as PIECES
from shardwise.simulate.timeline import KINDS as SPANS
from shardwise.spec.policy import ATTENTION, OFFLOAD, RECOMPUTE, Policy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
CODES = {
    "axis or setting of a policy": [field.name for field in fields(Policy)],
    "schedule": list(schedules()),
    "recompute": list(RECOMPUTE),
    "attention": list(ATTENTION),
    "offload": [*OFFLOAD, *OFFLOAD_CODES.values()],
    "kind of memory": [*KINDS, *LETTERS],
    "part of a step": list(PARTS),
    "piece of a timeline": list(SPANS),
}


def words_of(text: str) -> set[str]:
    """Every word in code of the first column."""
    firsts = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    return {word for first in firsts for word in re.findall(r"`([^`]+)`", first)}


@pytest.mark.parametrize("kind", CODES)
def test_every_code_has_an_entry(kind):
    known = words_of(PAGE.read_text(encoding="utf-8"))
    assert [code for code in CODES[kind] if code not in known] == []


@pytest.mark.parametrize(
    ("heading", "letters"),
    [("Kinds of memory", {kind: letter for kind, (letter, _) in LETTERS.items()}), ("Pieces of a timeline", PIECES)],
)
def test_letters_are_the_ones_printed(heading, letters):
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    assert dict(re.findall(r"`([\w ]+)` \((\w)\)", section)) == letters


def test_an_entry_is_short():
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    assert {len(row) for row in rows} == {2}
    assert [row[0] for row in rows if len(row[1].split()) > 45] == []


def test_a_missing_code_is_found():
    text = PAGE.read_text(encoding="utf-8").replace("| `zb_v` |", "| V |")
    assert "zb_v" not in words_of(text)
