"""Layouts of matrices in answers, launch files and comparisons, in the words that programs have for them."""

import json

import pytest

from shardwise.plugins.optimizers import optimizer_names, update_rule
from shardwise.show.cli import main


def told(capsys, *words):
    assert main([*words, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def plan_file(capsys, path, *words):
    path.write_text(json.dumps(told(capsys, "estimate", "llama-3-8b", "--on", "8xh100", "--seq", "2048", *words)))
    return str(path)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--zero", "1"), {"owned": "LayerWiseDistributedOptimizer"}),
        (("--zero", "1", "--tp", "2"), {"owned": "LayerWise", "duplicated": "--muon-tp-mode duplicated"}),
        (("--zero", "0", "--tp", "8", "--matrix-layout", "blockwise"), {"blockwise": "--muon-tp-mode blockwise"}),
        (("--zero", "3", "--stack", "torchtitan", "--matrix-layout", "all-to-all"), {"all-to-all": "DistMuon"}),
        (("--zero", "3", "--stack", "torchtitan", "--matrix-layout", "gather"), {"gather": "fsdp2-Muon"}),
        (("--zero", "0"), {}),
    ],
)
def test_answers_name_the_layout(words, names, capsys):
    answer = told(capsys, "estimate", "llama-3-8b", "--on", "8xh100", "--optimizer", "muon", *words)
    lines = [line for line in answer["assumptions"] if line.startswith("matrices ")]
    assert [line.split(":")[0].removeprefix("matrices ") for line in lines] == list(names)
    assert all(word in line for word, line in zip(names.values(), lines, strict=True))


def test_the_fullest_gpu_of_the_issue(capsys):
    """Two bytes more than a quarter of Llama 3 8B's elements: master and momentum, and two moments of the rest."""
    answer = told(capsys, "estimate", "llama-3-8b", "--on", "8xh100", "--zero", "1", "--optimizer", "muon")
    assert answer["stages"][0]["kinds_bytes"]["optimizer"] == pytest.approx(8.56e9, rel=1e-3)


@pytest.mark.parametrize("layout", ["", "blockwise"])
def test_megatron_flags_there_and_back(layout, tmp_path, capsys):
    wanted = ["--zero", "1", "--tp", "2", "--optimizer", "muon", *(("--matrix-layout", layout) if layout else ())]
    plan = plan_file(capsys, tmp_path / "plan.json", *wanted)
    assert main(["export", plan, "--to", "megatron"]) == 0
    script = capsys.readouterr().out
    mode = layout or "duplicated"
    for words in ("--optimizer muon", f"--muon-tp-mode {mode}", "--use-distributed-optimizer", "--muon-scale-mode"):
        assert words in script
    (tmp_path / "train.sh").write_text(script)
    read = told(capsys, "check", str(tmp_path / "train.sh"), "--on", "8xh100")
    assert (read["policy"]["matrix_layout"], read["policy"]["zero"]) == (layout, 1)


def test_megatron_flags_left_out(tmp_path, capsys):
    """Its own defaults: pieces as they are, and SOAP's bases in every step."""
    plan = plan_file(capsys, tmp_path / "plan.json", "--zero", "1", "--tp", "2", "--optimizer", "soap")
    assert main(["export", plan, "--to", "megatron"]) == 0
    script = capsys.readouterr().out
    assert "--soap-precondition-frequency 10" in script
    (tmp_path / "soap.sh").write_text(script.replace("--soap-precondition-frequency 10", ""))
    (tmp_path / "muon.sh").write_text(
        (tmp_path / "soap.sh").read_text().replace("--optimizer soap", "--optimizer muon")
    )
    soap, muon = (told(capsys, "check", str(tmp_path / f"{name}.sh"), "--on", "8xh100") for name in ("soap", "muon"))
    assert "soap_precondition_frequency 1: priced as 10" in json.dumps(soap)
    assert muon["policy"]["matrix_layout"] == "blockwise"


def test_what_programs_do_not_have_is_refused(tmp_path, capsys):
    titan = plan_file(capsys, tmp_path / "a.json", "--zero", "3", "--optimizer", "muon", "--stack", "torchtitan")
    assert main(["export", titan, "--to", "torchtitan"]) == 2
    assert "DistMuon" in capsys.readouterr().err


def test_compare_shows_what_longer_steps_must_save(capsys):
    words = ["compare", "llama-3-8b", "--on", "8xh100", "--policy", "dp=8,zero=1", "--seq", "2048"]
    words += ["--global-batch", "64", "--optimizer", "adamw,muon,lion"]
    first, muon, lion = told(capsys, *words)["cases"]
    assert [case["optimizer"] for case in (first, muon, lion)] == ["adamw", "muon", "lion"]
    assert muon["step_s"] > first["step_s"] > lion["step_s"]
    assert muon["traffic_bytes"]["dp"]["node"] == pytest.approx(first["traffic_bytes"]["dp"]["node"])
    assert not first["published_savings"]
    assert not lion["published_savings"]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    least = 1 - first["step_s"] / muon["step_s"]
    paid = sum(each["fewer_tokens"] > least for each in muon["published_savings"])
    assert f"more than {least:.1%} pay for its step, as in {paid} of {len(muon['published_savings'])}" in shown


def test_savings_have_a_source():
    for name in optimizer_names():
        for each in update_rule(name).saves:
            assert 0 < each.share < 1
            assert each.source.startswith(("arXiv:", "modded-nanogpt"))
