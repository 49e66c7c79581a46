"""Typed answers: the same fields for JSON, schema, terminal and notebook, and no verb that prints beside them."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Struct

from shardwise.answers.answer import FactList, Rendered, Table, columns, shown, table, with_notes
from shardwise.answers.batch import batch_answer
from shardwise.answers.gpus import gpu_answer, gpus_answer
from shardwise.show.cli import main
from shardwise.show.cli._verbs import VERBS
from shardwise.show.cli.schema import answer_types, modules_of
from shardwise.show.page.wire import FORMS
from shardwise.spec.load import gpu_of

CLI = Path(__file__).resolve().parents[2] / "src" / "shardwise" / "show" / "cli"
TYPED = [module for verb in VERBS for module in modules_of(verb) if answer_types(module)]


class Row(Struct, frozen=True, kw_only=True):
    name: Annotated[str, shown("who")]
    hidden: int
    rate: Annotated[float | None, shown("GB/s", "GB/s")]


def test_columns_are_the_fields_that_say_a_label() -> None:
    assert {name: (label, text(2e9)) for name, (label, text) in columns(Row).items()} == {
        "name": ("who", 2e9),
        "rate": ("GB/s", 2.0),
    }
    made = table("rates", [Row(name="a", hidden=1, rate=5e9), Row(name="b", hidden=2, rate=None)])
    assert (made.heads, made.rows) == (["who", "GB/s"], [["a", 5.0], ["b", None]])
    assert table("none", [], row=Row).heads == ["who", "GB/s"]


def test_a_unit_nobody_writes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'furlong' is unknown.*'GB/s'"):
        shown("length", "furlong")


def test_json_has_the_fields_as_declared_and_notes_last() -> None:
    data = batch_answer(4096, 64, None, None, 32, 1, 4, 1, ["a note"]).data()
    assert next(iter(data)) == "seq_tokens"
    assert list(data)[-1] == "notes"
    assert data["notes"][0] == "a note"
    assert "pipeline stages" in data["notes"][1]
    assert "notes" not in gpus_answer().data()["gpus"][0]


def test_a_notebook_shows_the_parts_of_the_terminal() -> None:
    answer = gpu_answer(gpu_of("h100"), ["read <this>"])
    html = answer._repr_html_()
    facts = next(part for part in with_notes(answer) if isinstance(part, FactList))
    assert all(name in html for name, value in facts.facts if value is not None)
    assert "read &lt;this&gt;" in html
    assert "<svg" in html


def test_every_answer_can_be_shown() -> None:
    """`serve` also lists what its page is sent."""
    shown = [kind for verb in TYPED for kind in answer_types(verb) if kind not in FORMS.values()]
    assert all(issubclass(kind, Rendered) for kind in shown)


def test_the_table_of_the_terminal_is_the_answer_s(capsys: pytest.CaptureFixture[str]) -> None:
    made = next(part for part in gpus_answer().parts() if isinstance(part, Table))
    assert main(["catalog", "gpus"]) == 0
    lines = capsys.readouterr().out
    assert all(str(row[0]) in lines for row in made.rows)
    assert main(["catalog", "gpus", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gpu_answer(gpu_of("h100")).data()
