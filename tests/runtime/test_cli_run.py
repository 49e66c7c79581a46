"""`run` and `verify` as a user meets them: a model with flags, a plan file, mistakes; ranks that die or hang."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shardwise.cli import main  # noqa: E402

TINY = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip
JOB = ["--seq", "16", "--global-batch", "4"]


@pytest.fixture
def tiny(tmp_path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return str(path)


def answer(capsys, *words: str) -> tuple[int, dict]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_verify_holds(tiny, capsys) -> None:
    code, found = answer(capsys, "verify", tiny, "--on", "2xh100", "--tp", "2", *JOB)
    assert code == 0
    assert found["holds"]
    assert found["messages_equal"]
    assert found["memory_error"] < 0.02
    assert {row["axis"] for row in found["messages"]} == {"tp"}


def test_verify_prints_at_80_columns(tiny, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["verify", tiny, "--on", "2xh100", "--pp", "2", *JOB]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "prediction holds" in lines[0]
    assert max(map(len, lines)) <= 80


def test_a_world_of_a_thousand(tiny, capsys) -> None:
    words = ("verify", tiny, "--world", "1024", "--tp", "2", "--zero", "3", "--seq", "16", "--global-batch", "512")
    code, found = answer(capsys, *words, "--shard-group", "16", "--fake", "--rank", "7", "--rank", "1023")
    assert code == 0
    assert found["holds"]
    assert found["ranks"] == 1024
    assert found["predicted_for"] == "dgx-h100:1024"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--on", "2xh100", "--tp", "2", "--world", "4"], "world: 4 ranks, the policy has 2"),
        (["--on", "2xh100", "--tp", "2", "--rank", "0"], "leave --rank away"),
        (["--world", "0", "--fake"], "world: 0 is out of range"),
        (["--world", "8", "--fake", "--rank", "8"], "write 0 to 7"),
        (["--on", "2xh100", "--tp", "2", "--embedding", "vocabulary"], "did you mean 'vocab'"),
    ],
)
def test_verify_refuses(tiny, capsys, words, told) -> None:
    assert main(["verify", tiny, "--seq", "16", "--global-batch", "8", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_world_with_nothing_else_said(capsys) -> None:
    assert main(["verify"]) == 2
    assert "--world N --fake" in capsys.readouterr().err
    code, found = answer(capsys, "verify", "--world", "1024", "--fake")
    assert code == 0
    assert found["model"] == "llama-3-8b"
    assert found["notes"][0].startswith("no plan was named: llama-3-8b, dp 128, tp 8")


def test_other_cuts_are_predicted(tiny, capsys) -> None:
    cuts = ("--embedding", "broadcast", "--attention-split", "gather-qk")
    code, found = answer(capsys, "verify", tiny, "--on", "2xh100", "--tp", "2", *cuts, *JOB)
    assert code == 0
    assert "broadcast" in {row["op"] for row in found["messages"]}


def test_verify_writes_a_trace(tiny, tmp_path, capsys) -> None:
    trace = tmp_path / "trace.json"
    assert main(["verify", tiny, "--on", "1xh100", *JOB, "--trace", str(trace)]) == 0
    capsys.readouterr()
    events = json.loads(trace.read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == ["measured: stage 0 (1 GPU)", "predicted: stage 0 (1 GPU)"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}


def test_run_learns_in_this_process(tiny, tmp_path, capsys) -> None:
    log = tmp_path / "log.jsonl"
    words = ("run", tiny, "--on", "1xh100", *JOB, "--steps", "8", "--rate", "1e-2", "--log", str(log))
    code, found = answer(capsys, *words)
    assert code == 0
    losses = [step["loss"] for step in found["steps"]]
    assert losses[-1] < losses[0]
    assert [json.loads(line)["loss"] for line in log.read_text().splitlines()] == losses


def test_a_plan_file_is_run(tiny, tmp_path, capsys) -> None:
    assert main(["estimate", tiny, "--on", "1xh100", *JOB, "--json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    code, found = answer(capsys, "verify", str(plan), "--model", tiny)
    assert code == 0
    assert found["notes"][0] == "planned for bf16, run in fp32"


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--on", "2xh100", "--tp", "2", "--nproc", "3"), "nproc"),
        (("--on", "2xh100", "--tp", "2", "--precision", "bf16"), "precision"),
        (("--on", "1xh100", "--steps", "0"), "steps"),
        (("--on", "1xh100", "--data", "nowhere.txt"), "data"),
        (("--on", "3xh100", "--tp", "3"), "tp"),
        ((), "--on"),
    ],
)
def test_mistakes_are_one_line(tiny, capsys, words, word: str) -> None:
    assert main(["run", tiny, *JOB, *words]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert word in told[0]


def test_torch_is_asked_for(tiny, capsys, monkeypatch) -> None:
    monkeypatch.setattr("shardwise.cli._plan_of.find_spec", lambda _: None)
    assert main(["verify", tiny, "--on", "1xh100", *JOB]) == 2
    assert "pip install 'shardwise[run]'" in capsys.readouterr().err


def test_a_broken_plan_is_refused(tmp_path, capsys) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"policy": {"tp": "two"}}')
    assert main(["verify", str(plan)]) == 2
    assert "plan:" in capsys.readouterr().err


def start(tiny: str, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "shardwise", "run", tiny, "--on", "2xh100", "--device", "cpu", *JOB, *words]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ranks_under(parent: int) -> list[int]:
    """Process ids of the ranks: torchrun's launcher runs in the process of `shardwise run`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(words[1]) == parent:
            found.append(int(status.parent.name))
    return sorted(found)


def losses_in(log: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {line["step"]: line["loss"] for line in lines}


def some_steps_done(log: Path, _: Path) -> bool:
    return len(losses_in(log)) >= 5


def checkpoint_half_written(_: Path, folder: Path) -> bool:
    """The second one, so that there is a whole one to go back to."""
    return (folder / "step-00000002").exists() and any(folder.glob(".step-*/*"))


@pytest.mark.slow
@pytest.mark.parametrize("moment", [some_steps_done, checkpoint_half_written])
def test_a_killed_rank_changes_nothing(moment, tiny, tmp_path) -> None:
    """The run goes on from the last whole checkpoint, and its losses are those of a run that was not disturbed."""
    common = ("--dp", "2", "--steps", "30", "--every", "2")
    quiet = start(tiny, *common, "--log", str(tmp_path / "quiet"), "--checkpoints", str(tmp_path / "a"))
    quiet.communicate(timeout=120)
    assert quiet.returncode == 0
    log, folder = tmp_path / "log", tmp_path / "b"
    run = start(tiny, *common, "--log", str(log), "--checkpoints", str(folder), "--max-restarts", "2")
    deadline = time.monotonic() + 100
    while not moment(log, folder) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(ranks_under(run.pid)[-1], signal.SIGKILL)
    _, told = run.communicate(timeout=200)
    assert run.returncode == 0, told
    assert "resumed after step" in told
    assert losses_in(log) == losses_in(tmp_path / "quiet")
    assert len(losses_in(log)) == 30


@pytest.mark.slow
def test_a_hung_rank_is_named(tiny, tmp_path) -> None:
    log = tmp_path / "log"
    run = start(tiny, "--dp", "2", "--steps", "100000", "--log", str(log), "--timeout", "5")
    deadline = time.monotonic() + 100
    while len(losses_in(log)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    hung = ranks_under(run.pid)[-1]
    os.kill(hung, signal.SIGSTOP)
    try:
        _, told = run.communicate(timeout=100)
    finally:
        run.kill()
        if Path(f"/proc/{hung}").exists():
            os.kill(hung, signal.SIGKILL)
        run.communicate()
    assert run.returncode == 2
    assert "no sign of rank" in told
    assert "bytes in the" in told
