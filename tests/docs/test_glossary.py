"""Whatever the tool prints as a code has an entry in the glossary."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import fields

from shardwise.answers._estimate_parts import LETTERS
from shardwise.answers.terms import all_terms
from shardwise.plugins.schedules import schedules
from shardwise.report.terminal import CODES as LEGEND
from shardwise.report.terminal import OFFLOAD_CODES
from shardwise.show.page.files import lessons_json
from shardwise.spec.policy import ATTENTION, OFFLOAD, RECOMPUTE, Policy
from shardwise.step.estimate.memory import KINDS
from shardwise.step.estimate.time import PARTS
from shardwise.step.simulate.gantt import LETTERS as PIECES
from shardwise.step.simulate.timeline import KINDS as SPANS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "glossary.md"
ROOMS = ("src/shardwise/answers", "src/shardwise/show/cli", "src/shardwise/report", "lab/src/shardwise_lab/cli")
TABLES = [file for room in ROOMS for file in sorted((ROOT / room).glob("*.py"))]
PLAIN = {"at", "by", "if", "in", "is", "it", "of", "on", "to", "up", "a"}
SHORTENED = {"diff", "err", "net", "params", "vocab", "psgd"}
"""with no capital, stroke or full stop that gives them away"""
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


def test_every_term_of_the_course_has_an_entry():
    known = {name.lower() for term in all_terms() for name in term.names}
    lessons = msgspec.json.decode(lessons_json())["lessons"]
    terms = {term.lower() for lesson in lessons for term in lesson["introduces"]}
    assert [term for term in sorted(terms) if not {term, term.removesuffix("s")} & known] == []


@pytest.mark.parametrize(
    ("heading", "letters"),
    [("Kinds of memory", LETTERS), ("Pieces of a timeline", PIECES)],
)
def test_letters_are_the_ones_printed(heading, letters):
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    assert dict(re.findall(r"`([\w ]+)` \((\w)\)", section)) == letters


def heads_of(source: str) -> set[str]:
    """Every word that a table of this module has in its head."""
    tree = ast.parse(source)
    lists = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "shown" and isinstance(node.args[0], ast.Constant):
            found.update(node.args[0].value.split())
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        place = {"print_table": 1, "add_column": 0}.get(name, len(node.args))
        if place < len(node.args):
            heads = node.args[place]
            for part in ast.walk(lists.get(heads.id, heads) if isinstance(heads, ast.Name) else heads):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found |= set(re.split(r"[\s()]+", part.value))
    return found


def is_abbreviation(word: str) -> bool:
    letters = re.sub(r"[^A-Za-z]", "", word)
    if not letters or word in PLAIN:
        return False
    inner_capital = any(letter.isupper() for letter in letters[1:])
    return inner_capital or "/" in word or word.endswith(".") or len(letters) <= 2 or word in SHORTENED


def test_every_abbreviation_in_the_head_of_a_table_has_an_entry():
    rows = [line.split(" | ")[0] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    known = {word for row in rows for word in re.split(r"[\s,`()|]+", row)}
    heads = {word for file in TABLES for word in heads_of(file.read_text(encoding="utf-8"))}
    assert {"MFU", "GiB", "us", "kv", "MWh"} <= heads, "heads are no longer found"
    assert sorted(word for word in heads if is_abbreviation(word) and word not in known) == []


def test_every_code_of_a_legend_has_an_entry():
    known = words_of(PAGE.read_text(encoding="utf-8"))
    assert [code for code in LEGEND if not any(re.match(rf"{code}\d*$", word) for word in known)] == []


def test_an_entry_is_short():
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    assert {len(row) for row in rows} == {2}
    assert [row[0] for row in rows if len(row[1].split()) > 45] == []


def test_a_missing_code_is_found():
    text = PAGE.read_text(encoding="utf-8").replace("| `zb_v` |", "| V |")
    assert "zb_v" not in words_of(text)
