"""`--sync` of estimate, plan and compare as a user meets it: pages of 80 columns, JSON, reasons, bad names."""

import csv
import json

import pytest

from shardwise.show.cli import main
from terminal import narrow_terminal, refused, shown  # noqa: F401

JOB = ["--seq", "2048", "--global-batch", "64"]
PLAN = ["plan", "gpt2", "--on", "2x8xa100-80", *JOB, "--top", "3"]
ESTIMATE = ["estimate", "gpt2", "--on", "2x8xa100-80", *JOB, "--zero", "0"]
BAD = [
    ([*ESTIMATE, "--sync", "dsdg"], "did you mean 'dsgd'?"),
    ([*ESTIMATE, "--sync", "dsgd,topology=rign"], "did you mean 'ring'?"),
    ([*ESTIMATE, "--sync", "local_sgd,evry=4"], "did you mean 'every'?"),
    ([*ESTIMATE, "--sync", "every=4"], "write the strategy first"),
    ([*ESTIMATE, "--sync", "qsgd,compressor=top_k"], "biased"),
    ([*PLAN, "--sync", "anny"], "is unknown"),
    ([*PLAN, "--sync", "dsgd", "--pareto"], "write --sync without them"),
    ([*PLAN, "--sync", "one_bit_adam"], "--optimizer sgd"),
    (["compare", "gpt2", "--on", "8xa100-80", "--sync", "dsgd,psgd"], "names 2 strategies"),
]


@pytest.mark.usefixtures("narrow_terminal")
@pytest.mark.parametrize(("words", "cure"), BAD)
def test_bad_input_is_one_line(capsys, words, cure):
    refused(capsys, words, cure)


@pytest.mark.usefixtures("narrow_terminal")
@pytest.mark.parametrize(
    "words",
    [[*ESTIMATE, "--sync", "mem_sgd"], [*PLAN, "--sync", "any"],
     ["compare", "gpt2", "--on", "2x8xa100-80", *JOB, "--sync", "psgd", "--sync", "diloco,every=64"]],
)  # fmt: skip
def test_pages_fit_and_have_no_codes(capsys, words):
    page = shown(capsys, words)
    assert max(map(len, page.splitlines())) <= 80
    assert "\x1b" not in page
    assert "the same loss" in page


def test_estimate_says_both_step_and_time_to_the_loss(capsys):
    found = json.loads(shown(capsys, [*ESTIMATE, "--sync", "mem_sgd,compressor.ratio=0.01", "--json"]))
    sync = found["sync"]
    assert found["policy"]["sync"] == "mem_sgd,compressor.ratio=0.01"
    assert sync["to_loss_s"] == pytest.approx(found["step_s"] * (1 + sync["extra_steps"]))
    assert "evidence/fit_convergence.py" in sync["extra_source"]
    assert found["time_s"]["sync_work"] > 0
    assert sum(found["time_s"].values()) == pytest.approx(found["step_s"])
    plain = json.loads(shown(capsys, [*ESTIMATE, "--json"]))
    assert plain["sync"] is None
    assert sync["dense_step_s"] == pytest.approx(plain["step_s"])


def test_an_illegal_pair_gets_the_reason_and_a_command(capsys):
    words = [*ESTIMATE[:-2], "--zero", "1", "--sync", "dsgd", "--json"]
    found = json.loads(shown(capsys, words, code=1))
    assert found["rule"] == "sync strategy"
    assert "--shard-group" in found["why"]
    assert found["cure"].endswith("--zero 0 --sync dsgd")


def test_plan_ranks_by_the_time_to_the_loss(capsys):
    found = json.loads(shown(capsys, [*PLAN, "--sync", "any", "--json"]))
    times = [entry["to_loss_s"] for entry in found["best"]]
    assert times == sorted(times)
    each = {entry["sync"]: entry for entry in found["strategies"]}
    assert len(each) > 20
    assert each["psgd"]["extra_steps"] == 0
    assert each["dsgd"]["policy"]["sync"] == "dsgd"
    assert all(entry["why_not"] or entry["step_s"] > 0 for entry in found["strategies"])
    plain = json.loads(shown(capsys, [*PLAN, "--json"]))
    assert "strategies" not in plain
    assert each["psgd"]["step_s"] == plain["recommended"]["step_s"]


def test_compare_holds_strategies_against_each_other(capsys):
    words = ["compare", "gpt2", "--on", "2x8xa100-80", *JOB, "--policy", "ddp"]
    found = json.loads(shown(capsys, [*words, "--sync", "psgd", "--sync", "dsgd", "--sync", "krum", "--json"]))
    assert [case["asked"] for case in found["cases"]] == ["ddp", "ddp dsgd", "ddp krum"]
    assert found["cases"][0]["sync"] is None
    assert found["cases"][1]["sync"]["workers"] == 16


def test_the_command_of_a_plan_can_be_run(capsys):
    assert main([*ESTIMATE, "--sync", "local_sgd,every=8"]) == 0
    assert "local_sgd,every=8" in capsys.readouterr().out


def test_a_sweep_draws_strategies_over_the_number_of_gpus(tmp_path, capsys):
    table, figure = tmp_path / "out.csv", tmp_path / "out.svg"
    words = ["sweep", "bert-large", "--on", "dgx-v100", "--over", "gpus=8:32", "--policy", "ddp,micro=4"]
    files = ["--csv", str(table), "--figure", str(figure)]
    assert main([*words, "--sync", "psgd,dsgd", *files, "--json"]) == 0
    dense, gossip = json.loads(capsys.readouterr().out)["studies"]
    assert (dense["sync"], gossip["sync"]) == ("psgd", "dsgd")
    for point in dense["points"]:
        assert point["to_loss_s"] == point["step_s"]
        assert not point["policy"]["sync"]
    for point in gossip["points"]:
        assert point["policy"]["sync"] == "dsgd"
        assert point["to_loss_s"] > point["step_s"]
    last = gossip["points"][-1]
    asked = ["estimate", "bert-large", "--on", "dgx-v100:32", "--zero", "0", "--micro", "4", "--sync", "dsgd", "--json"]
    assert main(asked) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["step_s"] == pytest.approx(last["step_s"])
    assert alone["sync"]["to_loss_s"] == pytest.approx(last["to_loss_s"])
    text = figure.read_text()
    assert text.count("<polyline") == 4
    assert "a step to the same loss, s" in text
    with table.open(newline="") as file:
        assert [row["sync"] for row in csv.DictReader(file)] == ["psgd"] * 3 + ["dsgd"] * 3
    assert main([*words, "--sync", "psgd,dsdg"]) == 2
    assert "did you mean 'dsgd'?" in capsys.readouterr().err
