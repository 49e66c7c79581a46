"""A short run of the fuzzer, and everything it ever found."""

import contextlib
import importlib
import io
import pkgutil

import pytest

from fuzz.drive import drive
from fuzz.found import FOUND
from fuzz.one import Place, run_one
from fuzz.readers import kinds, readers
from fuzz.samples import make_special, replaced
from fuzz.verbs import commands, file_options
from shardwise import catalog
from shardwise.programs import importers
from shardwise.show.cli import main
from shardwise.show.cli._installed import installed_verbs
from shardwise.show.cli._verbs import VERBS

pytest.importorskip("torch", reason="run and verify are fuzzed too")
FEW = 800


@pytest.mark.parametrize(("files", "words", "wanted"), FOUND.values(), ids=FOUND)
def test_what_was_found_is_refused_in_one_line(files, words, wanted, tmp_path, monkeypatch):
    make_special(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(words) == 2
    assert err.getvalue().startswith("error: ")
    assert err.getvalue().count("\n") == 1
    assert wanted in err.getvalue()
    assert replaced(tmp_path) == ""


def test_a_short_run_finds_nothing():
    found = drive(FEW, seed="short", workers=1)
    assert found.failures == []
    assert found.inputs == FEW
    assert found.peak_rss_bytes < 2 * 2**30


def test_whatever_is_there_is_fuzzed():
    """Every verb with its options, every importer, every kind of the catalog: nobody lists them."""
    assert {command.words[0] for command in commands()} == {*VERBS, *installed_verbs()}
    assert ("fabric", "expect") in {command.words for command in commands()}
    assert all(command.options for command in commands())
    read = {reader.name.split(".")[3] for reader in readers() if ".importers." in reader.name}
    named = [info.name for info in pkgutil.iter_modules(importers.__path__)]
    parsing = {
        name for name in named if hasattr(importlib.import_module(f"shardwise.programs.importers.{name}"), "parse")
    }
    assert parsing <= read
    assert "shardwise.programs.formats.read_launch" in {reader.name for reader in readers()}
    assert kinds() == catalog.KINDS


def test_every_option_that_names_a_file_has_a_sample():
    place = Place()
    try:
        found = {option.name for _, option in file_options(place.names)}
        assert {
            "FOLDER",
            "CHECKPOINTS",
            "RUN",
            "TOPOLOGY",
            "PLAN",
            "MODEL",
            "ON",
            "DATA",
            "FROM",
            "PROFILE",
            "PAIRS",
            "HOSTS",
            "GRAPH",
            "PRICES",
            "FILES",
        } <= found
    finally:
        place.close()


def test_the_same_number_is_the_same_input():
    place = Place()
    try:
        assert [run_one("same", n, place)[0] for n in range(5)] == [run_one("same", n, place)[0] for n in range(5)]
    finally:
        place.close()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ZeroDivisionError("oh"), "traceback"),
        (MemoryError("116 GiB"), "memory"),
        (ValueError(""), "traceback"),
    ],
    ids=["traceback", "memory", "empty message"],
)
def test_a_reader_that_fails_is_seen(fault, kind, monkeypatch):
    def broken(*_):
        raise fault

    place = Place()
    monkeypatch.setattr("fuzz.one.read", broken)
    monkeypatch.setattr("fuzz.one.VERBS", 0.0)
    monkeypatch.setattr("fuzz.one.FILES", 0.0)
    monkeypatch.setattr("fuzz.one.CATALOG", 0.0)
    try:
        assert run_one("seen", 0, place)[1].kind == kind
    finally:
        place.close()


def test_a_line_that_fails_replaces_or_leaves_something_is_seen(monkeypatch):
    def replaces(_):
        (place.folder / "theirs.svg").write_bytes(b"gone")
        return 0

    def leaves(_):
        (place.temporary / "something").touch()
        return 0

    place = Place()
    monkeypatch.setattr("fuzz.one.VERBS", 1.0)
    try:
        for answer, kind in (
            (lambda _: 70, "traceback"), (lambda _: 3, "wrong exit code"), (lambda _: 2, "wrong exit code"),
            (replaces, "replaced"), (leaves, "left behind"),
        ):  # fmt: skip
            monkeypatch.setattr("fuzz.one.main", answer)
            assert run_one("seen", 0, place)[1].kind == kind
    finally:
        place.close()


def test_a_hang_and_a_death_are_seen_and_the_rest_is_run(monkeypatch, tmp_path):
    code = """
import os, sys, time, json
first, last = int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last, int(sys.argv[4])):
    print(json.dumps({"begin": number}), flush=True)
    time.sleep(60) if number == 1 else os._exit(9) if number == 3 else None
    print(json.dumps({"end": number, "what": "", "kind": "fine", "why": "", "seconds": 0, "rss": 1}), flush=True)
"""
    folder = tmp_path / "fuzz"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "worker.py").write_text(code)
    monkeypatch.setattr("fuzz.drive.TESTS", tmp_path)
    monkeypatch.setattr("fuzz.drive.HANG_S", 3.0)
    found = drive(6, workers=1)
    assert found.inputs == 6
    assert [(failure["number"], failure["kind"]) for failure in found.failures] == [(1, "hang"), (3, "died")]
