"""estimate, plan and validate as a user meets them: pages, JSON, exit codes, one clear line for bad input."""

import csv
import json
import shlex

import pytest

from shardwise.question.job import divisible_near
from shardwise.show.cli import main
from terminal import narrow_terminal, refused, shown  # noqa: F401

GOOD = [
    ["estimate", "llama-3-70b", "--on", "dgx-h100:1024", "--tp", "8", "--pp", "4", "--vpp", "5"],
    ["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--global-batch", "1M tokens", "--tokens", "1T"],
    ["estimate", "deepseek-v3", "--on", "h800:2048", "--pp", "16", "--ep", "64", "--seq", "4096",
     "--global-batch", "15360", "--recompute", "full"],
    ["estimate", "gpt2", "--on", "8xa100-80", "--micro", "8", "--attention", "plain", "--recompute", "selective"],
    ["plan", "llama-3-70b", "--on", "dgx-h100:1024"],
    ["plan", "mixtral-8x7b", "--on", "dgx-h100:64", "--tokens", "1T", "--top", "3", "--seq", "4096"],
    ["plan", "gpt2", "--on", "8xv100", "--stack", "torchtitan"],
]  # fmt: skip
TOO_LARGE = [
    ["estimate", "llama-3-70b", "--on", "8xh100", "--tp", "8"],
    ["estimate", "llama-3-70b", "--on", "dgx-h100:1024", "--tp", "3"],
    ["plan", "llama-3.1-405b", "--on", "8xh100"],
]
BAD = [
    (["estimate", "llama-3-70b"], "--on"),
    (["estimate", "lama-3-70b", "--on", "8xh100"], "did you mean"),
    (["estimate", "llama-3-8b", "--on", "8xh1000"], "did you mean"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--tp", "0"], "tp"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "4"], "0, 1, 2 or 3"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--recompute", "ful"], "did you mean 'full'?"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--schedule", "1f2b"], "did you mean '1f1b'?"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--precision", "bf17"], "did you mean"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--optimizer", "adm"], "did you mean"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--stack", "megatron"], "did you mean"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--global-batch", "0"], "global_batch"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--seq", "0"], "seq"),
    (["estimate", "mnist-mlp", "--on", "8xh100", "--seq", "8"], "single examples"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--top", "0"], "top"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--headroom", "1.5"], "headroom"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--tokens", "1.5"], "whole number"),
    (["validate"], "--data"),
    (["validate", "--data", "/no/such.csv"], "there is no file"),
    (["validate", "--data", "/no/such.csv", "--stack", "nanotrom"], "did you mean 'nanotron'?"),
]


pytestmark = pytest.mark.usefixtures("narrow_terminal")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(a, 0) for a in GOOD] + [(a, 1) for a in TOO_LARGE],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_pages_fit_and_json_is_json(arguments, code, capsys):
    text = shown(capsys, arguments, code)
    assert text.strip()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert isinstance(json.loads(shown(capsys, [*arguments, "--json"], code)), dict)


@pytest.mark.parametrize(("arguments", "cure"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_is_one_line_and_exit_2(arguments, cure, capsys):
    refused(capsys, arguments, cure)


@pytest.mark.parametrize("verb", ["estimate", "plan", "validate"])
def test_help(verb, capsys):
    assert "--json" in (text := shown(capsys, [verb, "--help"]))
    assert max(len(line) for line in text.splitlines()) <= 80


def data_of(capsys, arguments, code=0):
    return json.loads(shown(capsys, [*arguments, "--json"], code))


def test_data_parallel_is_what_is_left_and_chunks_mean_interleaving(capsys):
    policy = data_of(capsys, GOOD[0])["policy"]
    assert (policy["dp"], policy["schedule"]) == (32, "interleaved")


@pytest.mark.parametrize(
    "wrong",
    [["--tp", "3"], ["--micro", "3"], ["--tp", "8", "--ep", "2"], ["--pp", "4", "--vpp", "3", "--schedule", "gpipe"]],
)
def test_an_illegal_policy_comes_with_a_command_that_runs(wrong, capsys):
    refused = data_of(capsys, ["estimate", "llama-3-70b", "--on", "dgx-h100:1024", *wrong], 1)
    assert refused["legal"] is False
    assert refused["rule"]
    assert refused["why"]
    words = shlex.split(refused["cure"])
    assert words[0] == "shardwise"
    assert main([*words[1:], "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["legal"] is True


def test_overlap_follows_the_stack_unless_stated(capsys):
    base = ["estimate", "llama-3-8b", "--on", "8xh100", "--tp", "2"]
    assert data_of(capsys, base)["policy"]["overlap_tp"] is True
    off = data_of(capsys, [*base, "--no-overlap-tp"])
    assert off["policy"]["overlap_tp"] is False
    assert off["step_s"] > data_of(capsys, base)["step_s"]
    assert data_of(capsys, [*base, "--no-sp"])["policy"]["sp"] is False


def test_tokens_become_a_batch_that_can_be_dealt_out(capsys):
    found = data_of(capsys, ["estimate", "llama-3-8b", "--on", "8xh200", "--global-batch", "4M tokens"])
    assert found["global_sequences"] == 512
    assert any("taken as 512" in note for note in found["notes"])
    assert [divisible_near(x) for x in (488.28, 512.0, 100.0, 0.4, 3.3, 1953.125)] == [512, 512, 100, 1, 3, 2048]


def test_plan_ranks_and_says_why(capsys):
    found = data_of(capsys, [*GOOD[4], "--tokens", "15T", "--failures", "off"])
    assert len(found["best"]) == 5
    steps = [entry["step_s"] for entry in found["best"]]
    assert steps == sorted(steps)
    assert all(entry["peak_bytes"] <= found["limit_bytes"] for entry in found["best"])
    assert found["best"][0]["run"]["seconds"] == pytest.approx(15e12 / found["step_tokens"] * steps[0])
    assert {"kind", "why", "policy"} <= set(found["losers"][0])
    assert any("treat them as equal" in note for note in found["notes"])
    assert found["points"] > found["evaluated"] > found["fitting"] > 10
    assert found["finished"]


def test_the_planned_command_gives_the_planned_step(capsys):
    found = data_of(capsys, GOOD[4])
    again = data_of(capsys, shlex.split(found["next"][0])[1:])
    assert again["step_s"] == pytest.approx(found["recommended"]["step_s"])
    assert again["peak_bytes"] == pytest.approx(found["recommended"]["peak_bytes"])


RUN = {
    "source": "bench", "model": "llama-3-8b", "seq": "8192", "gpu": "H100-80GB-SXM", "gpus": "8", "tp": "2", "dp": "4",
    "pp": "1", "micro_batch": "1", "global_batch": "128", "recompute": "none", "software": "Megatron-Core",
    "zero_stage_or_fsdp": "1", "tokens_per_s_per_gpu": "11000",
}  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(RUN))
        writer.writeheader()
        writer.writerows([RUN, RUN | {"source": "[bold]"}])
    return path


def test_validate_writes_the_file_and_prints_the_table(runs, tmp_path, capsys):
    out = tmp_path / "out.json"
    out.write_text('{\n  "rows": []\n}')  # of an older one
    text = shown(capsys, ["validate", "--data", str(runs), "--json", str(out)])
    assert "[bold]" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert set(json.loads(out.read_text())) == {"rows", "summary"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "runs.csv"]


def test_validate_says_how_often_the_band_held_and_which_programs_it_does_not_know(runs, capsys):
    known = " ".join(shown(capsys, ["validate", "--data", str(runs)]).split())
    assert "the 80 % band held 100.0% of the steps, 100.0% in the mean over sources" in known
    assert "is not known" not in known
    rows = runs.read_text().replace("Megatron-Core", "Unheard-of 3").replace("[bold],llama-3-8b", "[bold],unheard-of")
    runs.write_text(rows)
    text = " ".join(shown(capsys, ["validate", "--data", str(runs)]).split())
    assert "software 'Unheard-of 3' is not known; taken as generic (1 row)" in text
    assert "1 of 2 rows are not predicted: --json says why" in text


def test_every_plan_says_its_risk_its_nearest_run_and_what_supports_it(capsys):
    found = data_of(capsys, ["plan", "llama-3-8b", "--on", "8xh100", "--top", "3"])
    for entry in found["best"]:
        assert None not in (entry["risk"], entry["nearest_run"], entry["evidence"])
    assert found["error_basis"] == found["best"][0]["evidence"]


def test_validate_says_which_rows_it_reads_otherwise_than_stated(runs, capsys):
    assert "rule out" not in shown(capsys, ["validate", "--data", str(runs)])
    runs.write_text(runs.read_text().replace("bench", "vTrain-single").replace(",none,", ",full,"))
    text = " ".join(shown(capsys, ["validate", "--data", str(runs)]).split())
    assert "vTrain-single: 1 of its rows counted without the recomputation they state" in text


def test_validate_to_stdout(runs, capsys):
    found = json.loads(shown(capsys, ["validate", "--data", str(runs), "--json", "-"]))
    assert found["summary"]["all"]["n"] == 2


@pytest.mark.parametrize("target", ["missing/out.json", "."])
def test_validate_cannot_write(runs, target, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "--data", str(runs), "--json", target]) == 2
    found = capsys.readouterr()
    assert found.err.startswith("error: json: ")
    assert found.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["runs.csv"]


@pytest.mark.parametrize(
    ("text", "cure"), [("", "no column"), ("a,b\n1,2\n", "no column"), ("source,model,gpu,gpus,seq\n", "no rows"),
                       ("source,model,gpu,gpus,seq\ns,m,h100,eight,1\n", "gpus is 'eight'")])  # fmt: skip
def test_validate_refuses_what_is_no_table(text, cure, tmp_path, capsys):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main(["validate", "--data", str(path)]) == 2
    found = capsys.readouterr().err
    assert cure in found
    assert found.count("\n") == 1
