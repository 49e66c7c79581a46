"""`--html FILE` on every verb: what is printed stands on the page, which needs nothing else."""

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardwise.show.cli import main
from shardwise.show.cli._examples import EXAMPLES
from shardwise.show.cli._frame import _takes
from shardwise.show.cli._html import NO_RESULT
from shardwise.show.cli._verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]


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
        (["catalog", "gpus"], ["h100"]),
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


DRAWN = (
    "catalog gpus", "catalog gpus h100", "catalog models", "catalog models llama-3-8b", "catalog clusters",
    "catalog clusters dgx-h100:64", "catalog programs",
    "calc roofline dgx-h100:64 --tp 8", "calc mfu llama-65b --tps 380 --on a100-80", "answers all-gather-in-a-node",
    "calc batch --global 2048 --seq 4096 --gpus 1024 --tp 8", "calc collective all_reduce 1GB --on 8xh100", "sync list",
    "sync cost dsgd --model gpt2 --on dgx-h100:16", "compare gpt2 --on 8xh100 --policy fsdp --policy tp=2",
    "search stages gpt2 --on 8xh100 --pp 4", "search cuts --chain 4096,16384,4096 --on 8xh100", "size gpt2 --on 4xv100",
    "size --max batch gpt2 --on 8xh100 --fix tp=2,recompute=none", "export gpt2 --on 8xh100 --to megatron",
    "sweep gpt2 --on h100 --over gpus=8:16 --policy fsdp", "operate gpt2 --on 8xh100 --tokens 1B --step 1s --runs 10",
    "search gpt2 --on 8xh100 --pp 4 --method dp", "catalog layouts gpt-neox", "preflight --gather {preflight}",
    "check {launch} --model gpt2 --on 8xh100", "plan gpt2 --on 8xh100 --fix tp=2,pp=1 --why",
    "validate --data {runs}",
)  # fmt: skip
"""command lines that draw; those that train, measure or trace are looked at where they run anyway"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    launch = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --seq-length 1024 --bf16\n"
    (folder / "train.sh").write_text(launch)
    runs = (ROOT / "src/shardwise/catalog/measured/published.csv").read_text().splitlines(keepends=True)
    (folder / "runs.csv").write_text("".join(runs[:12]))
    return {"launch": folder / "train.sh", "runs": folder / "runs.csv",
            "preflight": ROOT / "examples/preflight/node1.json"}  # fmt: skip


@pytest.mark.parametrize("line", DRAWN)
def test_what_can_be_compared_is_drawn(line, files, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main([*shlex.split(line.format(**files)), "--html", str(page)]) in (0, 1), capsys.readouterr().err
    found = read(page)
    assert [tag for tag, _ in found.tags].count("svg") >= 1
    assert "NaN" not in found.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["catalog", "gpus", "--html"], "no file is named"),
        (["catalog", "gpus", "--html", "x.txt"], "ends in .html"),
        (["catalog", "gpus", "--html", "x.html", "--json"], "leave one of them out"),
        (["catalog", "gpus", "--html", "x.html", "--html", "y.html"], "2 times"),
        (["serve", "--html", "x.html"], "prints no result"),
        (["catalog", "gpus", "--html", "theirs.html"], "was not written by shardwise"),
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
    assert main(["catalog", "gpus", "--html", "theirs.html", "--overwrite"]) == 0


def test_every_verb_has_it():
    assert set(NO_RESULT) - {"completion", "schema"} < set(VERBS) == {line.split()[0] for line in EXAMPLES}
    assert [verb for verb in VERBS if _takes([verb], "--html")] == ["watch"]


def test_every_verb_lists_it_in_its_help(capsys):
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        assert ("--html" in capsys.readouterr().out) == (verb not in NO_RESULT), verb
