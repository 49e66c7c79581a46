"""`shardwise why`: logs and traces beside their prediction, cures in the program's words, one line for bad input."""

import json
import random
import re
import sys
from pathlib import Path

import pytest

from shardwise.show.cli import main
from terminal import narrow_terminal, shown  # noqa: F401

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("importers", "diagnose")]
from log_samples import log_of  # noqa: E402
from made_traces import Made, write  # noqa: E402

pytestmark = pytest.mark.usefixtures("narrow_terminal")
JOB = ["--model", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--global-batch", "64"]


def answered(capsys, words: list[object], code: int = 0) -> dict:
    assert main(["why", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, words: list[object]) -> str:
    assert main(["why", *map(str, words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def predicted(capsys, words: list[str] = JOB) -> float:
    model = words[1]
    assert main(["estimate", model, *words[2:], "--json"]) == 0
    return json.loads(capsys.readouterr().out)["step_s"]


def steady(seconds: float, count: int = 120) -> list[float]:
    noise = random.Random(5)
    return [seconds * (1 + noise.gauss(0, 0.003)) for _ in range(count)]


def test_a_log_alone_says_what_it_can_and_what_it_cannot(tmp_path, capsys):
    path = tmp_path / "train.log"
    path.write_text(
        log_of("megatron", steady(5.0), pauses=dict.fromkeys(range(25, 121, 25), 20.0), said="saving checkpoint")
    )
    found = answered(capsys, [path])
    (log,) = found["logs"]
    assert (log["program"], log["causes"][0]["cause"]) == ("Megatron", "checkpoint")
    assert log["causes"][0]["share"] == pytest.approx(4 * 20 / (120 * 5 + 80), rel=0.05)
    assert any("which part" in line for line in found["cannot_say"])
    assert any("--model" in line for line in found["cannot_say"])
    text = shown(capsys, ["why", str(path)])
    assert "every 25 steps" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_log_beside_its_prediction(tmp_path, capsys):
    expected, path = predicted(capsys), tmp_path / "train.log"
    path.write_text(log_of("torchtitan", steady(expected)))
    job = [*JOB, "--seq", "8192"]
    # the sample prints rates of 8 GPUs and 1,048,576 tokens a step; the job has half as many tokens
    path.write_text(log_of("torchtitan", [2 * each for each in steady(expected)]))
    log = answered(capsys, [path, *job])["logs"][0]
    assert (log["in_seconds"], log["within_band"]) == (True, True)
    assert log["step_s"] == pytest.approx(expected, rel=0.01)
    path.write_text(log_of("torchtitan", [3 * each for each in steady(expected)]))
    found = answered(capsys, [path, *job], code=1)
    first = found["logs"][0]["causes"][0]
    assert (found["slower_than_band"], first["cause"]) == (True, "level")
    assert first["share"] == pytest.approx(1 / 3, rel=0.03)
    assert first["usd_per_day"][0] > 0


def test_traces_beside_their_prediction(tmp_path, capsys):
    expected = predicted(capsys) * 1e3
    write(Made(ranks=8, steps=3, compute=expected, factor={5: 1.6}, described="mesh_dp_shard"), tmp_path)
    found = answered(capsys, [tmp_path, *JOB], code=1)["trace"]
    assert found["slow_rank"] == "rank 5"
    first = found["causes"][0]
    assert (first["cause"], first["where"]) == ("straggler", "rank 5")
    assert first["share"] == pytest.approx(0.6 / 1.6, rel=0.05)
    assert len(found["ranks"]) == 8
    text = shown(capsys, ["why", str(tmp_path), *JOB], 1)
    assert "rank 5" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_cure_is_in_the_words_of_the_program(tmp_path, capsys):
    policy = ["--on", "dgx-h100:16", "--tp", "2", "--zero", "1", "--no-overlap-grad", "--no-overlap-param"]
    job = [*policy, "--global-batch", "64"]
    assert main(["export", "llama-3-8b", *job, "--to", "megatron", "--out", str(tmp_path / "launch")]) == 0
    capsys.readouterr()
    expected = predicted(capsys, ["--model", "llama-3-8b", *job]) * 1e3
    made = Made(ranks=16, steps=2, compute=expected, reduce=expected, hidden=0.0, described="DATA_PARALLEL_GROUP")
    traces = write(made, tmp_path / "traces", only=(0,))
    config = ["--config", tmp_path / "launch" / "train.sh", "--on", "dgx-h100:16"]
    found = answered(capsys, [*traces, *config], code=1)
    assert found["target"] == "megatron"
    first = found["trace"]["causes"][0]
    assert first["cause"] == "grad_comm"
    assert "--overlap-grad-reduce" in first["cure"]["options"]
    assert first["cure"]["step_change"] < 0
    write(Made(ranks=16, steps=2, compute=expected, data=expected), tmp_path / "traces", only=(0,))
    first = answered(capsys, [*traces, *config], code=1)["trace"]["causes"][0]
    assert (first["cause"], first["cure"]["options"]) == ("data", ["--num-workers 8"])


def test_a_simulated_step_is_what_was_predicted(tmp_path, capsys):
    job = ["--on", "8xh100", "--pp", "4", "--global-batch", "32"]
    for more, code in (([], None), (["--straggler", "stage=2,factor=1.5"], "compute")):
        path = tmp_path / f"step{len(more)}.json.gz"
        assert main(["simulate", "llama-3-8b", *job, *more, "--trace", str(path)]) == 0
        capsys.readouterr()
        assert main(["why", str(path), "--model", "llama-3-8b", *job, "--json"]) in (0, 1)
        found = json.loads(capsys.readouterr().out)["trace"]
        if code is None:
            assert found["slower"] == pytest.approx(0, abs=0.01)
            assert max(cause["share"] for cause in found["causes"]) < 0.01
        else:
            assert found["causes"][0]["cause"] == code
            assert found["slower"] > 0.05


def test_relative_times_are_never_called_seconds(tmp_path, capsys):
    path = tmp_path / "train.log"
    text = log_of("torchtitan", [*steady(4.0), *steady(5.0)])
    path.write_text(text)
    assert answered(capsys, [path])["logs"][0]["in_seconds"] is True  # by the times of its lines
    path.write_text(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "", text))
    log = answered(capsys, [path])["logs"][0]
    assert log["in_seconds"] is False
    assert log["step_s"] is None
    assert log["causes"][0]["cause"] == "shift"
    assert log["causes"][0]["measured_s"] is None
    assert log["causes"][0]["share"] == pytest.approx(0.5 / 4.5, rel=0.05)
    assert " ms" not in shown(capsys, ["why", str(path)])


CLOCKS = "timestamp, index, name, clocks.sm [MHz], utilization.gpu [%], clocks_event_reasons.active\n" + "".join(
    f"2026/09/11 04:19:4{n}.0, {gpu}, NVIDIA H100 80GB HBM3, {mhz} MHz, 99 %, {why}\n"
    for n in range(9) for gpu, mhz, why in ((0, 1755, "0x0"), (1, 1755, "0x0"), (2, 1356, "0x40"))
)  # fmt: skip


def test_clocks_beside_a_log_are_a_part_of_their_own(tmp_path, capsys):
    expected = predicted(capsys)
    log, clocks = tmp_path / "train.log", tmp_path / "clocks.csv"
    log.write_text("step,step_time\n" + "".join(f"{n},{1.5 * each}\n" for n, each in enumerate(steady(expected))))
    clocks.write_text(CLOCKS)
    found = answered(capsys, [log, clocks, *JOB], code=1)
    told, causes = found["clocks"], {each["cause"]: each for each in found["logs"][0]["causes"]}
    assert (told["slow_gpu"], told["boost_hz"], round(told["counted_hz"] / 1e6)) == ("GPU 2", 1.98e9, 1719)
    # GEMMs at 1,719 MHz take 27 % longer at 1,356: at most that of all predicted kernels
    assert 0 < causes["clocks"]["lost_s"] <= 0.27 * expected
    assert causes["clocks"]["lost_s"] + causes["level"]["lost_s"] == pytest.approx(0.5 * expected, rel=0.02)
    assert causes["clocks"]["where"] == "GPU 2"
    assert "thermal" in causes["clocks"]["evidence"]
    text = shown(capsys, ["why", str(log), str(clocks), *JOB], 1)
    assert "GPU 2 is 23% below the others" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_summary_of_a_run_alone(tmp_path, capsys):
    path = tmp_path / "out.txt"
    path.write_text(
        "{'train_runtime': 100.0, 'train_samples_per_second': 5.0, 'train_steps_per_second': 0.5, 'epoch': 1}"
    )
    log = answered(capsys, [path])["logs"][0]
    assert (log["step_s"], log["records"]) == (2.0, 1)
    assert "whole run" in log["notes"][0]


@pytest.mark.parametrize(("words", "said"), [
    (["none.log"], "run: there is no file 'none.log'"),
    (["train.log", "--model", "llama-3-8b"], "on: not given"),
    (["train.log", "--on", "8xh100"], "model: not given"),
    (["train.log", "--steps", "0"], "steps: 0 is out of range"),
    (["train.log", "--model", "llama-3-8b", "--on", "8xh100", "--tp", "3"], "policy: it could not have run so"),
    (["train.log", "--config", "train.log", "--on", "8xh100"], "train.log is of no known program"),
    (["train.log", "--config", "train.log"], "on: not given"),
    (["notes.txt"], "run: notes.txt has no step"),
])  # fmt: skip
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(log_of("megatron", steady(5.0, 20)))
    (tmp_path / "notes.txt").write_text("nothing of a run\n")
    assert said in refused(capsys, words)
