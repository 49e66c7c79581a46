"""The JSON Schema of every verb: published, the same in the package, and true of answers it was not made of."""

import json
import shlex
from pathlib import Path

import pytest

from asked import OTHERS, TRAINED, files
from schema_check import faults
from shardwise.show.cli import main
from shardwise.show.cli._routes import FORMS
from shardwise.show.cli._verbs import BESIDE, VERBS
from shardwise.show.cli.schema import answer_types, modules_of, published_schema

pytestmark = pytest.mark.xdist_group("schemas")  # they share what a fixture of theirs computes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers")
    for name, content in files().items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return path


def answer(command, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    code = main(shlex.split(command))
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    return json.loads(out)


@pytest.mark.parametrize("command", OTHERS)
def test_answers_keep_to_their_schema(command, folder, capsys, monkeypatch):
    schema = published_schema(command.split()[0])
    assert list(faults(answer(command, folder, capsys, monkeypatch), schema, schema))[:5] == []


def test_answers_of_training_keep_to_theirs(folder, capsys, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    for verb, commands in TRAINED.items():
        for command in commands:
            schema = published_schema(verb)
            assert list(faults(answer(command, folder, capsys, monkeypatch), schema, schema))[:5] == [], command


def test_every_verb_has_typed_answers():
    assert [module for verb in VERBS for module in modules_of(verb) if not answer_types(module)] == []


def test_every_verb_is_held_against_an_answer():
    assert {command.split()[0] for command in OTHERS} | set(TRAINED) - set(FORMS) == {*VERBS, *BESIDE}


def test_second_words_and_other_questions_have_schemas_of_their_own():
    for verb in VERBS:
        for other in {*modules_of(verb)} - {verb}:
            own = published_schema(other)
            ways = own.get("anyOf") or [{key: own[key] for key in own if key not in ("$schema", "title", "$defs")}]
            assert all(way in published_schema(verb)["anyOf"] for way in ways), other


def test_the_check_can_fail():
    schema = published_schema("estimate")
    for wrong in ({}, {"legal": True}, {"legal": "yes", "fits": False}, []):
        assert list(faults(wrong, schema, schema))
    assert list(faults(1, {"type": "string"}, {}))
    assert list(faults({"a": 1}, {"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}}}, {}))
    assert list(faults([1, "x"], {"items": {"type": "integer"}}, {}))
    assert list(faults(1, {"minimum": 2}, {}))
    assert list(faults(1, {"multipleOf": 1}, {})), "a word that is not understood"


def test_types_give_the_schema():
    assert published_schema("estimate")["$defs"]["Policy"]["properties"]["tp"]["type"] == "integer"
    cuts = published_schema("cuts")["$defs"]
    assert "study" not in cuts["CutsAnswer"]["properties"], "what is only shown is no key of the JSON"
    assert {"from", "to"} <= set(cuts["CutMessage"]["properties"])


def test_the_verb_prints_them(capsys):
    assert main(["plan", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "shardwise plan --json"
    assert main(["--schema"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {*VERBS, *BESIDE}
    assert main(["plann", "--schema"]) == 2
    assert "did you mean 'plan'" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "code"), [
    (["estimate", "gpt2", "--on", "4xv100"], 0), (["estimate", "llama-3-70b", "--on", "1xh100"], 1),
    (["estimate", "gpt2", "--on", "4xv100", "--tp", "3"], 1), (["estimate", "gpt2"], 2), (["nothing"], 2),
    (["estimate", "gpt2", "--on", "4xv1000"], 2),
])  # fmt: skip
def test_exit_codes_are_those_of_the_page(words, code, capsys):
    assert main(words) == code
    capsys.readouterr()
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"| {code} |" in page


def test_a_mistake_of_its_own_and_an_interrupt_have_their_codes(capsys, monkeypatch):
    from shardwise.show.cli import _frame, _output

    assert [_frame.BAD_INPUT, _frame.UNFORESEEN, _frame.INTERRUPTED] == [2, 70, 130]
    monkeypatch.setattr(_output, "print_json", lambda _: 1 / 0)
    assert main(["calc", "batch", "--global", "64", "--seq", "1024", "--dp", "8", "--micro", "1", "--json"]) == 70
    assert "a mistake in shardwise" in capsys.readouterr().err
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"| {code} |" in page for code in (0, 1, 2, 70, 130))
