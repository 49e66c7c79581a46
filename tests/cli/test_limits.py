"""Numbers and surroundings no machine has: a refusal that names the limit, before time and memory are gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise.show.cli import main

ROOT = Path(__file__).resolve().parents[2]
TINY = ["docs/tiny-llama.json", "--on", "1xh100", "--seq", "64", "--global-batch", "8"]


@pytest.fixture
def huge(tmp_path, capsys):
    """A cluster of so many GPUs, as a YAML file."""

    def made(gpus):
        main(["catalog", "clusters", "dgx-h100:16384", "--yaml"])
        text = capsys.readouterr().out.replace("gpus: 16384", f"gpus: {gpus}").replace("degree: 32", "degree: 400000")
        (tmp_path / "huge.yaml").write_text(text)
        return str(tmp_path / "huge.yaml")

    return made


@pytest.mark.parametrize(
    ("words", "gpus", "limit"),
    [
        (["fabric", "llama-3-8b", "--tp", "8", "--global-batch", "125000"], 10**6, "at most 131,072"),
        (["fabric", "expect"], 10**8, "at most 100,000"),
        (
            ["search", "llama-3-8b", "--problem", "ranks", "--tp", "8", "--global-batch", "125000"],
            10**6,
            "at most 4,096",
        ),
    ],
    ids=["fabric", "expect", "ranks"],
)
def test_a_cluster_beyond_all_tables_is_refused(words, gpus, limit, huge, capsys):
    assert main([*words, "--on", huge(gpus)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert limit in told


@pytest.mark.parametrize(("column", "value"), [("layers", "1000000000"), ("params_b", "1e9")])
def test_a_billion_layers_in_a_table_are_said_and_not_built(column, value, tmp_path, capsys):
    cells = {"source": "s", "model": "odd", "gpu": "H100-80GB-SXM", "gpus": "8", "seq": "2048", "hidden": "64",
             "heads": "4", "global_batch": "8", "step_seconds": "1", column: value}  # fmt: skip
    (tmp_path / "runs.csv").write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    assert main(["validate", "--data", str(tmp_path / "runs.csv"), "--json", "-"]) == 0
    told = capsys.readouterr().out
    assert '"verdict": "unsupported"' in told
    assert "at most 4,096" in told


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"RANK": "3"}, "WORLD_SIZE: it is not set"),
        ({"TORCHELASTIC_RUN_ID": "x"}, "WORLD_SIZE: it is not set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK: '2' is not a whole number from 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK: 'x' is not a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_PORT: it is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "99999"}, "MASTER_PORT: '99999'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "999"}, "MASTER_ADDR: it is not set"),
    ],
)
def test_a_rank_without_a_world_is_refused(told, wanted, monkeypatch, capsys):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert main(["run", str(ROOT / TINY[0]), *TINY[1:]]) == 2
    assert f"error: {wanted}" in capsys.readouterr().err


def test_the_unforeseen_is_one_line_that_can_be_reported(monkeypatch, capsys):
    def broken(_):
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr("shardwise.show.cli.models.model_of", broken)
    assert main(["catalog", "models", "llama-3-8b"]) == 70
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "ZeroDivisionError: nobody thought of it (test_limits.py:" in told
    monkeypatch.setenv("SHARDWISE_TRACEBACK", "1")
    assert main(["catalog", "models", "llama-3-8b"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_too_little_memory_is_said(monkeypatch, capsys):
    def huge_array(_):
        raise MemoryError("Unable to allocate 116. GiB")

    monkeypatch.setattr("shardwise.show.cli.models.model_of", huge_array)
    assert main(["catalog", "models", "llama-3-8b"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: memory: there is not enough for this (Unable to allocate 116. GiB)"
    )


def launched(*words, **options):
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **options.pop("env", {})}
    command = [sys.executable, "-m", "shardwise", *words]
    return subprocess.run(command, env=variables, text=True, timeout=120, check=False, **options)


def test_streams_that_are_closed_or_full(tmp_path):
    with open("/dev/full", "w") as full:
        found = launched("catalog", "gpus", stdout=full, stderr=subprocess.PIPE)
    assert found.returncode == 2
    assert found.stderr == "error: stdout: it cannot be written (No space left on device); send it elsewhere\n"
    line = f"{sys.executable} -m shardwise catalog gpus >&- 2>&-"
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run(["sh", "-c", line], env=variables, cwd=tmp_path, timeout=120, check=False).returncode == 0


def test_the_answer_does_not_hang_on_the_hash_seed():
    words = ["search", "cuts", "llama-3-8b", "--on", "dgx-h100:64", "--json"]
    answers = {launched(*words, env={"PYTHONHASHSEED": seed}, capture_output=True).stdout for seed in ("0", "1", "2")}
    assert len(answers) == 1
