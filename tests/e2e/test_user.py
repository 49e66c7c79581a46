"""As a user meets it: a separate process, 80 columns, its output in a pipe, good input and bad."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = (
    "source,model,gpu,gpus,gpus_per_node,seq,global_batch,micro_batch,dp,tp,pp,zero_stage_or_fsdp,software,step_seconds"
)
RUNS = f"""{HEADER}
mine,llama-3-8b,h100,8,8,8192,512,1,8,1,1,fsdp-full(3),torchtitan,60
mine,llama-3-8b,h100,8,8,8192,512,1,4,2,1,1,megatron,50
mine,llama-3-8b,h100,8,8,8192,512,1,8,3,1,1,megatron,50
mine,some-hybrid,h100,8,8,8192,512,1,8,1,1,1,megatron,50
"""


def shardwise(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}
    found = subprocess.run([sys.executable, "-m", "shardwise", *words], env=environment, capture_output=True, text=True)
    assert "Traceback" not in found.stdout + found.stderr
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(RUNS)
    return path


GOOD = [
    ["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3"],
    ["estimate", "llama-3-70b", "--on", "dgx-h100:64", "--tp", "8", "--pp", "4", "--vpp", "2", "--global-batch", "512"],
    [
        "estimate",
        "mixtral-8x7b",
        "--on",
        "dgx-h100:64",
        "--ep",
        "8",
        "--tp",
        "2",
        "--recompute",
        "full",
        "--seq",
        "4096",
    ],
    ["plan", "llama-3-8b", "--on", "8xh100"],
    ["plan", "llama-3-70b", "--on", "dgx-h100:64", "--seq", "4096", "--global-batch", "4M tokens", "--tokens", "1T"],
]


@pytest.mark.parametrize("words", GOOD, ids=" ".join)
def test_good_input_prints_80_columns_and_plain_json(words):
    page = shardwise(*words)
    assert page.returncode == 0, page.stderr
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert "\x1b" not in page.stdout
    assert page.stderr == ""
    data = shardwise(*words, "--json")
    assert data.returncode == 0
    found = json.loads(data.stdout)
    entry = found["best"][0] if words[0] == "plan" else found
    assert 0 < entry["step_s"] < 3600
    assert 0 < entry["peak_bytes"] < 80 * 2**30


DOES_NOT_FIT = [
    ["estimate", "llama-3-70b", "--on", "8xh100", "--tp", "8"],
    ["estimate", "llama-3-8b", "--on", "8xh100", "--tp", "3"],
    ["estimate", "llama-3-8b", "--on", "8xh100", "--micro", "7"],
    ["estimate", "llama-3-8b", "--on", "8xh100", "--tp", "16"],
    ["plan", "llama-3.1-405b", "--on", "8xh100"],
]


@pytest.mark.parametrize("words", DOES_NOT_FIT, ids=" ".join)
def test_what_cannot_run_ends_with_1_and_says_why(words):
    page = shardwise(*words)
    assert page.returncode == 1
    assert max(map(len, page.stdout.splitlines())) <= 80
    data = shardwise(*words, "--json")
    assert data.returncode == 1
    found = json.loads(data.stdout)
    if words[0] == "estimate":
        assert found["fits"] is False
        assert found["verdict"]
    else:
        assert found["best"] == []


def test_the_cure_for_an_illegal_policy_is_a_command_that_is_legal():
    found = json.loads(shardwise("estimate", "llama-3-8b", "--on", "8xh100", "--tp", "3", "--json").stdout)
    assert found["legal"] is False
    words = found["cure"].split()
    assert words[0] == "shardwise"
    cured = json.loads(shardwise(*words[1:], "--json").stdout)
    assert cured["legal"] is True


BAD = [
    (["estimate", "lama-3-8b", "--on", "8xh100"], "did you mean"),
    (["estimate", "llama-3-8b"], "--on"),
    (["estimate", "llama-3-8b", "--on", "8xh1000"], "h100"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--tp", "two"], "tp"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--tp", "0"], "tp"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "4"], "zero"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--recompute", "ful"], "did you mean 'full'?"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--seq", "8 GB"], "seq"),
    (["estimate", "llama-3-8b", "--on", "8xh100", "--stack", "megatron-cor"], "megatron-core"),
    (["estimate", "no/such/config.json", "--on", "8xh100"], "config.json"),
    (["estimate", "llama-3-8b", "--on", "nowhere.yaml"], "nowhere.yaml"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--top", "0"], "top"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--headroom", "1.5"], "headroom"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--precision", "bf17"], "bf16"),
    (["plan", "llama-3-8b", "--on", "8xh100", "--global-batch", "-4"], "global-batch"),
    (["plan", "mnist-mlp", "--on", "8xh100", "--seq", "8"], "mnist-mlp"),
    (["plan"], "MODEL"),
    (["plam"], "did you mean 'plan'?"),
    (["validate"], "--data"),
    (["validate", "--data", "no-such.csv"], "no-such.csv"),
    (["validate", "--data", str(ROOT / "LICENSE")], "column"),
    (["validate", "--data", str(ROOT)], "CSV"),
]


@pytest.mark.parametrize(
    ("words", "clue"), BAD, ids=lambda value: value if isinstance(value, str) else " ".join(value[:6])
)
def test_bad_input_ends_with_2_and_one_line(words, clue):
    found = shardwise(*words)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: ")
    assert found.stderr.count("\n") == 1
    assert clue in found.stderr


def test_validate_scores_every_row(runs, tmp_path):
    target = tmp_path / "out.json"
    page = shardwise("validate", "--data", str(runs), "--json", str(target))
    assert page.returncode == 0, page.stderr
    assert max(map(len, page.stdout.splitlines())) <= 80
    document = json.loads(target.read_text())
    assert [row["verdict"] for row in document["rows"]] == ["ok", "ok", "illegal", "unsupported"]
    assert document["rows"][0]["error"] == pytest.approx(document["rows"][0]["step_s"] / 60 - 1)
    assert {"all", "mine"} <= set(document["summary"])
    assert json.loads(shardwise("validate", "--data", str(runs), "--json", "-").stdout) == document


def test_validate_names_the_row_and_column_of_a_bad_cell(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(RUNS.replace("fsdp-full(3),torchtitan,60", "fsdp-full(3),torchtitan,fast"))
    found = shardwise("validate", "--data", str(path))
    assert found.returncode == 2
    assert "row 0" in found.stderr
    assert "step_seconds" in found.stderr


def test_a_reader_that_leaves_early_is_no_trouble():
    command = f'"{sys.executable}" -m shardwise catalog models | head -n 1'
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
    assert found.stderr == ""
    assert found.stdout.count("\n") == 1


def test_a_cluster_file_that_shardwise_wrote_is_one_it_reads(tmp_path):
    site = tmp_path / "site.yaml"
    site.write_text(shardwise("catalog", "clusters", "dgx-h100:64", "--yaml").stdout)
    words = ["estimate", "llama-3-8b", "--zero", "3", "--json", "--on"]
    named, read = (json.loads(shardwise(*words, on).stdout) for on in ("dgx-h100:64", str(site)))
    assert read["step_s"] == named["step_s"]
