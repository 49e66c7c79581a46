"""The JSON Schema of every verb: published, the same in the package, and true of answers it was not made of."""

import importlib.util
import json
import shlex
import sys
from pathlib import Path

import pytest

from schema_answers import ASKED, OTHERS, files
from schema_check import faults
from shardwise.show.cli import main
from shardwise.show.cli._routes import FORMS
from shardwise.show.cli._verbs import BESIDE, VERBS
from shardwise.show.cli.schema import FOLDER, answer_types, modules_of, published_schema

pytestmark = pytest.mark.xdist_group("schemas")  # they share what a fixture of theirs computes

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ("run", "verify", "checkpoints", "trace", "auto", "prove")
"""held to the answers that their schema was made of, in the order they need each other"""


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_schemas", ROOT / "docs" / "write_schemas.py")
    module = sys.modules["write_schemas"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    for verb in TRAIN:
        for command in (each for commands in ASKED[verb].values() for each in commands):
            schema = published_schema(verb)
            assert list(faults(answer(command, folder, capsys, monkeypatch), schema, schema))[:5] == [], command


def test_a_verb_has_typed_answers_or_a_file_made_of_samples():
    files = {path.stem for path in FOLDER.glob("*.json")}
    modules = {module for verb in VERBS for module in modules_of(verb)}
    typed = {module for module in modules if answer_types(module)}
    assert files | typed == modules == set(ASKED) - set(BESIDE)
    assert not files & typed
    assert {"batch", "roofline", "collective", "gpus", "models", "clusters", "programs"} <= typed


def test_every_verb_is_held_against_an_answer():
    assert {command.split()[0] for command in OTHERS} | set(TRAIN) - set(FORMS) == {*VERBS, *BESIDE}


def test_second_words_and_other_questions_have_schemas_of_their_own():
    for verb in VERBS:
        for other in {*modules_of(verb)} - {verb}:
            own = published_schema(other)
            ways = own.get("anyOf") or [{key: own[key] for key in own if key not in ("$schema", "title", "$defs")}]
            assert all(way in published_schema(verb)["anyOf"] for way in ways), other


@pytest.mark.parametrize("verb", ["estimate", "mfu", "stages"])
def test_made_again_they_are_the_same(verb, writer, folder, monkeypatch):
    """Of some that are quick; `make schemas` writes all."""
    monkeypatch.chdir(folder)
    for path in (folder / "exported").glob("*"):
        path.unlink()
    assert json.loads(json.dumps(writer.schema_of(verb, ASKED[verb]))) == published_schema(verb), "run `make schemas`"


def test_the_check_can_fail():
    schema = published_schema("estimate")
    for wrong in ({}, {"legal": True}, {"legal": "yes", "fits": False}, []):
        assert list(faults(wrong, schema, schema))
    assert list(faults(1, {"type": "string"}, {}))
    assert list(faults({"a": 1}, {"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}}}, {}))
    assert list(faults([1, "x"], {"items": {"type": "integer"}}, {}))
    assert list(faults(1, {"minimum": 2}, {})), "a word that is not understood"


def test_types_give_the_schema_of_the_type(writer):
    """A policy is a struct: its fields are required or have defaults, whatever the answers had."""
    policy = published_schema("estimate")["$defs"]["Policy"]
    assert policy["properties"]["tp"]["type"] == "integer"
    shape = writer.Shape()
    for each in ({"a": 1, "b": None}, {"a": 2.5, "b": "x", "c": [1]}):
        shape.see(each)
    assert shape.schema({}) == {
        "type": "object", "required": ["a", "b"],
        "properties": {"a": {"type": "number"}, "b": {"type": ["null", "string"]},
                       "c": {"type": "array", "items": {"type": "integer"}}},
    }  # fmt: skip


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
