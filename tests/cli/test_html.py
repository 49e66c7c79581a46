"""`--html FILE` on every verb: what is printed stands on the page, which needs nothing else."""

import re
from html.parser import HTMLParser

import pytest

from shardwise.cli import main
from shardwise.cli._examples import EXAMPLES
from shardwise.cli._frame import _takes
from shardwise.cli._html import NO_RESULT
from shardwise.cli._verbs import VERBS


class Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.text, self.tags = "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def read(path):
    found = Words()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def plain(text):
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["gpus"], ["h100"]),
        (["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3"], ["peak memory", "assumptions"]),
        (["simulate", "gpt2", "--on", "8xh100", "--pp", "2"], ["bubble"]),
        (["answers", "pipeline-bubble"], ["pipeline-bubble"]),
        (["estimate", "gpt2", "--on", "8xh100", "--tp", "5"], ["cannot run"]),
    ],
)
def test_what_is_printed_stands_on_the_page(words, shown, tmp_path, capsys):
    code = main(words)
    before = capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main([*words, "--html", str(page)]) == code
    told = capsys.readouterr()
    assert told.out == before, "the terminal shows the same"
    assert told.err.endswith("(open in a browser)\n")
    found = read(page)
    for word in shown:
        assert plain(word) in plain(found.text)
    assert not {tag for tag, _ in found.tags} & {"script", "link", "iframe", "img", "object"}
    assert not [name for _, names in found.tags for name in names if name in ("src", "srcset") or name.startswith("on")]
    assert main([*words, f"--html={page}"]) == code, "a page of ours is replaced"


def test_figures_come_from_the_charts(tmp_path):
    assert main(["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--html", str(tmp_path / "a.html")]) == 0
    assert [tag for tag, _ in read(tmp_path / "a.html").tags].count("svg") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpus", "--html"], "no file is named"),
        (["gpus", "--html", "x.txt"], "ends in .html"),
        (["gpus", "--html", "x.html", "--json"], "leave one of them out"),
        (["gpus", "--html", "x.html", "--html", "y.html"], "2 times"),
        (["serve", "--html", "x.html"], "prints no result"),
        (["gpus", "--html", "theirs.html"], "was not written by shardwise"),
        (["estimate", "llama-9", "--on", "8xh100", "--html", "x.html"], "llama-9"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.html").write_text("theirs")
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.html"]
    assert main(["gpus", "--html", "theirs.html", "--overwrite"]) == 0


def test_every_verb_has_it():
    assert set(NO_RESULT) < set(VERBS) == set(EXAMPLES)
    assert {verb for verb in VERBS if verb not in NO_RESULT and _takes(verb, "--html")} == {"fabric", "lab", "watch"}
