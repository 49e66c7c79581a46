"""`run` and `verify` as a user meets them: a model with flags, a plan file, mistakes; ranks that die or hang."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")

from shardwise.run.runtime.train.lines import StepLine  # noqa: E402
from shardwise.run.runtime.train.rates import usual_rate, usual_warmup  # noqa: E402
from shardwise.show.cli import main  # noqa: E402
from shardwise.show.cli._as_predicted import as_predicted  # noqa: E402
from shardwise.show.cli._plan_of import RunFlags, on_device, plan_of  # noqa: E402
from shardwise.spec.arch import model_of  # noqa: E402

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


def test_run_evaluates_and_writes_scalars(tiny, tmp_path, capsys) -> None:
    common = ("run", tiny, "--on", "1xh100", *JOB, "--steps", "5", "--eval-every", "2", "--eval-steps", "3")
    code, found = answer(capsys, *common, "--tensorboard", str(tmp_path / "tb"), "--peak-tflops", "1")
    assert code == 0
    evaluated = {step["step"]: step for step in found["steps"] if step.get("eval_loss")}
    assert sorted(evaluated) == [2, 4, 5]
    assert evaluated[5]["perplexity"] == pytest.approx(2.718281828 ** evaluated[5]["eval_loss"], rel=1e-6)
    assert all(0 < step["mfu"] < 1 for step in found["steps"])
    assert len(list((tmp_path / "tb").iterdir())) == 1
    text = tmp_path / "text.txt"
    text.write_text("another text altogether. " * 40)
    code, other = answer(capsys, *common, "--eval-data", str(text))
    assert code == 0
    assert other["steps"][-1]["eval_loss"] != evaluated[5]["eval_loss"]


def test_steps_are_told_on_stderr_at_80_columns(tiny, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", tiny, "--on", "1xh100", *JOB, "--steps", "2", "--eval-every", "2"]) == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.err.splitlines()] == ["step:", "step:", "eval:"]
    assert "\x1b" not in told.out + told.err
    assert "perplexity" in told.out
    assert max(map(len, told.out.splitlines())) <= 80


def test_weights_out_and_in(tiny, tmp_path, capsys) -> None:
    """A run in two halves, with the weights as safetensors between them; a checkpoint is exported without training."""
    common = ("run", tiny, "--on", "1xh100", *JOB, "--optimizer", "sgd")
    code, whole = answer(
        capsys, *common, "--rate", "0.1", "--steps", "1", "--eval-every", "1", "--export", str(tmp_path / "one")
    )
    assert (code, whole["exported"]) == (0, str(tmp_path / "one"))
    assert sorted(p.name for p in tmp_path.glob("one/*")) == ["config.json", "model.safetensors"]
    model = str(tmp_path / "one" / "config.json")
    words = ("run", model, *common[2:], "--init", str(tmp_path / "one"), "--steps", "1", "--rate", "1e-9",
             "--eval-every", "1", "--checkpoints", str(tmp_path / "kept"))  # fmt: skip
    code, read = answer(capsys, *words)
    assert code == 0
    assert read["steps"][0]["eval_loss"] == pytest.approx(whole["steps"][0]["eval_loss"], abs=1e-6)
    code, done = answer(capsys, *words, "--export", str(tmp_path / "two"))
    assert (code, done["steps"]) == (0, [])
    assert (tmp_path / "two" / "model.safetensors").stat().st_size > 10_000
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_line_has_the_step_predicted_and_measured(tiny, capsys) -> None:
    assert main(["run", tiny, "--on", "1xh100", *JOB, "--steps", "2", "--progress", "none"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "run in fp32" in told.out
    text = " ".join(told.out.split())
    assert re.search(r"step predicted .+ on 1xh100, measured .+ here on the CPU: another machine", text)


def test_a_machine_is_compared_with_its_own_prediction(tiny, monkeypatch) -> None:
    found = plan_of(tiny, RunFlags(on="1xh100", seq="16", global_batch="4"))
    line = StepLine(step=1, loss=1.0, grad_norm=1.0, rate=1e-3, step_s=1.0, tokens_per_s=1.0, tflops_per_rank=1.0,
                    mfu=None, peak_bytes=1)  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    step = as_predicted(found, [replace(line, step_s=9.0)] * 3 + [line], "cuda")
    assert step.measured_s == 1.0
    assert step.slower == pytest.approx(1.0 / step.predicted_s - 1)
    assert step.text().endswith(f"({step.slower:+.1%})")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100-SXM4-80GB")
    assert as_predicted(found, [line], "cuda").slower is None


@pytest.mark.parametrize(
    ("flags", "device", "precision"),
    [
        ({}, "cpu", "fp32"),
        ({}, "cuda", "bf16"),
        ({"zero": 3}, "cuda", "fsdp-mixed-reduce32"),
        ({"offload": "optimizer"}, "cuda", "fp32"),
        ({"precision": "bf16"}, "cpu", "bf16"),
        ({"precision": "fp32"}, "cuda", "fp32"),
    ],
)
def test_what_is_planned_is_run_on_a_gpu(tiny, flags, device: str, precision: str) -> None:
    asked = RunFlags(on="2xh100", seq="16", global_batch="4", **flags)
    found = on_device(plan_of(tiny, asked), asked, device)
    assert found.job.precision.name == precision
    assert [note for note in found.notes if "run in" in note] == (
        [] if precision in ("bf16", asked.precision) else [found.notes[-1]]
    )


def test_a_perceptron_says_how_often_it_is_right(capsys) -> None:
    words = ["run", "mnist-mlp", "--on", "1xh100", "--global-batch", "64", "--steps", "60", "--progress", "bar"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "digits drawn here" in told.out.replace("\n          ", " ")
    assert float(re.search(r"accuracy ([\d.]+)%", told.out)[1]) > 80
    assert len(told.err.splitlines()) == 11


def test_the_rate_falls_with_the_width() -> None:
    assert usual_rate(model_of("llama-3-8b"), "adamw") == pytest.approx(6e-4 * 768 / 4096)
    assert usual_rate(model_of("mnist-mlp"), "adamw") == 1e-3
    assert usual_warmup("adamw", 0.95, 1000) == 40
    assert usual_warmup("adamw", 0.95, 50) == 25
    assert usual_warmup("sgd", 0.95, 1000) == 0


def test_a_plan_file_is_run(tiny, tmp_path, capsys) -> None:
    assert main(["estimate", tiny, "--on", "1xh100", *JOB, "--json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    code, found = answer(capsys, "verify", str(plan), "--model", tiny)
    assert code == 0
    assert any(note.startswith("planned for bf16, run in fp32") for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--on", "2xh100", "--tp", "2", "--nproc", "3"), "nproc"),
        (("--on", "2xh100", "--tp", "2", "--precision", "fp8"), "precision"),
        (("--on", "1xh100", "--steps", "0"), "steps"),
        (("--on", "1xh100", "--data", "nowhere.txt"), "data"),
        (("--on", "1xh100", "--decay", "cubic"), "wsd"),
        (("--on", "1xh100", "--progress", "loud"), "lines or bar or none"),
        (("--on", "1xh100", "--beta2", "1"), "beta2"),
        (("--on", "1xh100", "--tokenizer", "nowhere.json"), "tokenizer"),
        (("--on", "1xh100", "--eval-data", "x.txt"), "--eval-every"),
        (("--on", "1xh100", "--eval-every", "1", "--eval-data", "x.txt"), "eval-data"),
        (("--on", "2xh100", "--tp", "2", "--data", "nowhere.txt"), "data"),
        (("--on", "1xh100", "--max-restarts", "-1"), "max-restarts"),
        (("--on", "1xh100", "--seed", "-1"), "seed"),
        (("--on", "1xh100", "--capacity", "-1"), "capacity"),
        (("--on", "1xh100", "--peak-tflops", "-1"), "peak-tflops"),
        (("--on", "1xh100", "--init", "nowhere"), "init"),
        (("--on", "2xh100", "--tp", "2", "--export", "."), "export"),
        (("--on", "2xh100", "--tp", "2", "--log", "/nowhere/log"), "log"),
        (("--on", "1xh100", "--tensorboard", "/dev/null"), "tensorboard"),
        (("--on", "2xh100", "--tp", "2", "--checkpoints", "/dev/null/a"), "checkpoints"),
        ((), "--on"),
    ],
)
def test_mistakes_are_one_line(tiny, capsys, words, word: str) -> None:
    assert main(["run", tiny, *JOB, *words]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert word in told[0]


@pytest.mark.parametrize("verb", ["run", "verify"])
def test_an_illegal_policy_is_a_verdict(verb: str, tiny, capsys) -> None:
    """As everywhere: exit code 1, the rule, its numbers and the nearest policy that can."""
    words = [verb, tiny, *JOB, "--on", "3xh100", "--tp", "3"]
    assert main(words) == 1
    told = capsys.readouterr()
    assert "tp divides heads" in told.out
    assert f"shardwise {verb} " in " ".join(told.out.split())
    code, found = answer(capsys, *words)
    assert (code, found["legal"], found["rule"]) == (1, False, "tp divides heads")
    assert found["cure"].startswith(f"shardwise {verb} ")


def test_torch_is_asked_for(tiny, capsys, monkeypatch) -> None:
    monkeypatch.setattr("shardwise.show.cli._torch.find_spec", lambda _: None)
    assert main(["verify", tiny, "--on", "1xh100", *JOB]) == 2
    assert "pip install 'shardwise[run]'" in capsys.readouterr().err


def test_a_broken_plan_is_refused(tmp_path, capsys) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"policy": {"tp": "two"}}')
    assert main(["verify", str(plan)]) == 2
    assert "policy: tp is 'two'" in capsys.readouterr().err


def start(tiny: str, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "shardwise", "run", tiny, "--on", "2xh100", "--device", "cpu", *JOB, *words]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ranks_under(parent: int) -> list[int]:
    """Process ids of the ranks."""
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
@pytest.mark.parametrize(
    ("moment", "victim", "more"),
    [
        (some_steps_done, -1, ()),
        (checkpoint_half_written, -1, ()),
        (checkpoint_half_written, 0, ()),
        (checkpoint_half_written, -1, ("--no-async-checkpoints",)),
    ],
)
def test_a_killed_rank_changes_nothing(moment, victim: int, more: tuple, tiny, tmp_path) -> None:
    """The run goes on from the last whole checkpoint, and its losses are those of a run that was not disturbed."""
    common = ("--dp", "2", "--steps", "30", "--every", "2", *more)
    quiet = start(tiny, *common, "--log", str(tmp_path / "quiet"), "--checkpoints", str(tmp_path / "a"))
    quiet.communicate(timeout=120)
    assert quiet.returncode == 0
    log, folder = tmp_path / "log", tmp_path / "b"
    run = start(tiny, *common, "--log", str(log), "--checkpoints", str(folder), "--max-restarts", "2")
    deadline = time.monotonic() + 100
    while not moment(log, folder) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(ranks_under(run.pid)[victim], signal.SIGKILL)
    _, told = run.communicate(timeout=200)
    assert run.returncode == 0, told
    assert "resumed after step" in told
    assert losses_in(log) == losses_in(tmp_path / "quiet")
    assert len(losses_in(log)) == 30


@pytest.mark.slow
def test_a_hung_rank_is_named(tiny, tmp_path) -> None:
    log = tmp_path / "log"
    saved = ("--checkpoints", str(tmp_path / "a"), "--every", "1")
    run = start(tiny, "--dp", "2", "--steps", "100000", "--log", str(log), "--timeout", "5", *saved)
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
    assert run.returncode == 1
    assert "no sign of rank" in told
    assert "bytes in the" in told
