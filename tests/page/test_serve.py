"""`shardwise serve`: what it refuses, what it lists, and the page it writes as files."""

import json
import re

import pytest

from shardwise.show.cli import main
from shardwise.show.cli._page_files import FILES, key_of
from shardwise.show.page.views import asked_by, table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "99999"], "port: 99999"),
        (["--seconds", "0"], "seconds: 0"),
        (["--host", "0.0.0.0"], "--token new"),
        (["--host", "my-machine"], "--token new"),
        (["--token", "short"], "token:"),
        (["--case", "#/plan"], "--export FOLDER"),
        (["--watch", "nowhere"], "there is no 'nowhere'"),
        (["--export", "out", "--case", "#/nowhere"], "names no view"),
        (["--export", "out", "--case", "#/policy?model=llama-9"], "llama-9"),
        (["--export", "out", "--case", "#/policy?model=/etc/passwd"], "cannot be named here"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_views_are_listed(capsys):
    assert main(["serve", "--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["views"]
    assert [each["view"] for each in found] == list(table()["views"])
    assert main(["serve", "--list"]) == 0
    assert "timeline" in capsys.readouterr().out


def test_a_page_is_written_with_its_answers(capsys, tmp_path):
    folder = tmp_path / "page"
    link = "#/policy?model=llama-3-8b&on=8xh100&zero=3"
    assert main(["serve", "--export", str(folder), "--case", link, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert told["answers"] == len(table()["views"]["policy"]["asks"])
    data = (folder / "data.js").read_text()
    answers = json.loads(re.search(r"^window\.shardwiseAnswers = (.*);$", data, re.MULTILINE)[1])
    question = asked_by("estimate", {"model": "llama-3-8b", "on": "8xh100", "zero": "3"})
    assert main([*question.words, "--json"]) == 0
    assert answers[key_of(question)]["answer"] == json.loads(capsys.readouterr().out)
    index = (folder / "index.html").read_text()
    assert all(f'"{name}"' in index for name in FILES if name != "index.html")
    assert main(["serve", "--export", str(folder), "--case", link]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["serve", "--export", str(folder), "--case", link, "--overwrite"]) == 0
