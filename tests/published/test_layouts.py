"""Layouts that others published are legal here, fit, and stand near the top of the space or the report says why not."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from shardwise import catalog
from shardwise.measured.validate.layouts import publication_from, published_runs
from shardwise.question.studies.build import report_of
from shardwise.question.studies.published import TOP, judge
from shardwise.report.terminal import policy_code
from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

pytestmark = pytest.mark.xdist_group("layouts")  # they share what a fixture of theirs computes

ROOT = Path(__file__).resolve().parents[2]
RUNS = published_runs()
MEGATRON_TABLE = ["1.7b", "3.6b", "7.5b", "18.4b", "39.1b", "76.1b", "145.6b", "310.1b", "529.6b", "1008b"]


@pytest.fixture(scope="module")
def printed():
    """What `shardwise catalog layouts --ranks --json` prints, by layout."""
    with pytest.MonkeyPatch.context() as patch:
        text = []
        patch.setattr("sys.stdout.write", text.append)
        assert main(["catalog", "layouts", "--ranks", "--json"]) == 0
    return {item["layout"]: item for item in json.loads("".join(text))["layouts"]}


def test_the_layouts_that_have_to_be_there():
    names = {run.name for run in RUNS}
    assert {f"megatron-2021/{size}" for size in MEGATRON_TABLE} <= names
    assert {"llama-3/8k-gpus", "llama-3/16k-gpus", "llama-3/131k-tokens", "deepseek-v3/671b", "bloom/176b"} <= names
    assert {"mt-nlg/280-nodes", "mt-nlg/350-nodes", "mt-nlg/420-nodes"} <= names


@pytest.mark.parametrize("name", [run.name for run in RUNS])
def test_a_layout_is_legal_fits_and_stands_high_or_is_explained(name, printed):
    found = printed[name]
    assert found["legal"]
    assert found["had_room"]
    assert abs(found["error"]) < 0.55, "something else was run than is described"
    places = {"own": found["own"], "now": found["today"]}
    for word, place in places.items():
        if place is None:
            continue
        assert place["fitting"] >= place["faster"] >= 0
        assert place["share_faster"] == place["faster"] / place["fitting"]
        told = [line for line in found["why_not"] if line.startswith(f"{name}, {word}: ")]
        assert len(told) == (0 if place["share_faster"] <= TOP else 1)
        if told:
            assert place["best_step_s"] < place["step_s"]
            assert f"step {place['step_s'] / place['best_step_s'] - 1:+.1%}" in told[0]
            parts = sum(item["seconds"] for item in place["waterfall"])
            assert parts == pytest.approx(place["step_s"] - place["best_step_s"], rel=1e-6)
    assert found["in_the_top"] == (found["why_not"] == [])


def test_the_degrees_of_most_are_near_the_top_on_software_of_today(printed):
    near = [item["layout"] for item in printed.values() if item["degrees_today_share_faster"] <= TOP]
    assert len(near) >= 0.7 * len(printed)


def test_the_megatron_table_is_predicted(printed):
    errors = [abs(printed[f"megatron-2021/{size}"]["error"]) for size in MEGATRON_TABLE]
    assert sum(errors) / len(errors) < 0.06


def test_what_the_program_lacked_is_named_and_priced(printed):
    found = printed["megatron-2021/1.7b"]
    flash = next(item for item in found["missing"] if "flash attention" in item["what"])
    case = next(run for run in RUNS if run.name == found["layout"])
    model, stack = model_of(case.model), stack_of("megatron-core")
    steps = [
        report_of(
            case_of(model, case.cluster, case.job, stack), replace(case.candidates[0], attention=attention)
        ).step_s
        for attention in ("plain", "flash")
    ]
    assert flash["change"] == pytest.approx(steps[1] / steps[0] - 1)
    assert any("flash attention" in line for line in found["why_not"])
    assert printed["llama-3/16k-gpus"]["missing"] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_layout_is_something_its_program_could_run(run):
    for policy in run.candidates:
        for field, values in run.allowed.items():
            assert getattr(policy, field) in values, f"{field} of {run.name}"
    assert run.candidates[0].gpus == run.cluster.gpus


@pytest.mark.parametrize("stem", catalog.names("layouts"))
def test_a_publication_states_its_source(stem):
    found = publication_from(catalog.entry("layouts", stem), stem)
    assert len(found.source) > 10
    assert re.fullmatch(r"20\d\d-\d\d", found.date)
    assert len({run.name for run in found.runs}) == len(found.runs)


def test_an_open_value_takes_the_fastest_that_fits():
    run = next(run for run in RUNS if run.name == "nemotron-4/6144-gpus")
    assert set(run.open_fields) == {"vpp", "micro_batch", "recompute"}
    found = judge(run, stack_of("megatron-core"))
    model = model_of(run.model)
    reports = [
        report_of(case_of(model, run.cluster, run.job, run.stack), p) for p in run.candidates if p.micro_batch != 2
    ]
    assert found.report is not None
    assert found.report.step_s == min(r.step_s for r in reports if r.fits)
    assert found.own is not None
    assert found.own.best is not None


def test_a_rank_counts_what_is_really_faster():
    """A layout made slower falls: with full recompute more policies are ahead, first the one that was published."""
    run = next(run for run in RUNS if run.name == "megatron-2022/530b")
    slow = replace(run, candidates=(replace(run.candidates[0], recompute="full"),))
    modern = stack_of("megatron-core")
    before, after = judge(run, modern), judge(slow, modern)
    assert before.own is not None
    assert after.own is not None
    assert after.own.faster > before.own.faster
    assert after.own.best is not None
    assert policy_code(after.own.best) == policy_code(before.policy)


GOOD = """
title = "a layout"
source = "somewhere in print"
date = "2024-01"
stack = "megatron-core"
fabric = "dgx-h100"
precision = "bf16"
seq = 4096
[policy]
tp = 8
[[runs]]
name = "one"
model = "llama-3-8b"
gpus = 8
global_batch = 8
reported = { step_s = 1.0 }
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tp = 8", "tpp = 8", "'tpp' is not a field of a policy; did you mean 'tp'"),
        ("step_s = 1.0", "mfu = 0.4", "reported: counts is ''"),
        ("step_s = 1.0", "step_s = -1.0", "reported: step_s is stated; write one speed above 0"),
        ("step_s = 1.0", "", "reported: nothing is stated"),
        ("gpus = 8", 'gpus = "8"', "Expected `int`"),
        ('seq = 4096', "seq = 4096\nsequence = 1", "sequence is unknown"),
        ("[[runs]]", '[lacks]\nzero = "ZeRO"\n[[runs]]', "lacks: 'zero' is not restricted"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_field(old, new, says):
    publication_from(tomllib.loads(GOOD), "layout x")
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        publication_from(tomllib.loads(GOOD.replace(old, new)), "layout x")
    assert str(refused.value).startswith("layout x: ")
    assert "\n" not in str(refused.value)


def test_the_verb_lists_shows_one_and_refuses(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["catalog", "layouts", "mt-nlg"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert "mt-nlg/420-nodes" in page
    assert "why not in the top 5%" in page
    assert main(["catalog", "layouts", "bloom/176b"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert "Jean Zay" in page
    assert "sequence parallelism (2022)" in page
    assert main(["catalog", "layouts", "llama-3/17k"]) == 2
    assert "error: layout 'llama-3/17k' is unknown; did you mean 'llama-3/16k-gpus'?" in capsys.readouterr().err


def test_an_interruption_leaves_the_layouts_that_were_done(capsys, monkeypatch):
    done = []

    def once(run, modern, **options):
        if done:
            raise KeyboardInterrupt
        done.append(judge(run, modern, **options))
        return done[0]

    monkeypatch.setattr("shardwise.show.cli.layouts.judge", once)
    assert main(["catalog", "layouts", "mt-nlg", "--json"]) in (0, 130)
    found = json.loads(capsys.readouterr().out)
    assert [item["layout"] for item in found["layouts"]] == ["mt-nlg/280-nodes"]
    assert found["notes"] == ["interrupted: 2 of 3 layouts were not looked at"]


def test_the_page_is_current(printed):
    spec = importlib.util.spec_from_file_location("paste_layouts", ROOT / "docs" / "paste_layouts.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    stated = (ROOT / "docs" / "layouts.md").read_text(encoding="utf-8")
    assert page.tables(list(printed.values())) in stated, "docs/layouts.md is not of these formulas: run `make layouts`"


def test_the_list_without_ranks_predicts_the_same(printed, capsys):
    assert main(["catalog", "layouts", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["layouts"]
    assert {row["layout"] for row in rows} == set(printed)
    for row in rows:
        assert row["own"] is None
        for field in ("step_s", "reported_step_s", "error", "policy", "fits"):
            assert row[field] == printed[row["layout"]][field]
