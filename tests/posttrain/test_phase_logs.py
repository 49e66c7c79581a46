"""`why` on logs of reinforcement learning: phases as they are told, beside the step of the launch file."""

import json

import pytest
from stated_files import VERL, read

from shardwise.programs.importers.logs import parse_log
from shardwise.show.cli import main

STEP = (
    "(TaskRunner pid=7) step:{n} - actor/pg_loss:0.01 - critic/score/mean:0.5 - response_length/mean:900.5 - "
    "response_length/max:2048.0 - prompt_length/mean:154.8 - timing_s/start_profile:8e-05 - timing_s/gen:{gen} - "
    "timing_s/old_log_prob:14.0 - timing_s/ref:9.0 - timing_s/adv:0.03 - timing_s/update_actor:32.5 - "
    "timing_s/update_weights:5.8 - timing_s/step:{step} - perf/total_num_tokens:5322462 - "
    "perf/time_per_step:{step} - perf/throughput:524.5"
)
NEMO_STEP = """========================= Step {n}/50 =========================
📊 Training Results:
  • Loss: 0.1032
  • Mean Generation Length: 812.0
⏱️  Timing:
  • Total step time: {step}s
  • exposed_generation: {gen}s (48.9%)
  • policy_training: 25.05s (37.6%)
  • policy_and_reference_logprobs: 4.78s (7.2%)
  • weight_sync: 0.13s (0.2%)
"""


def test_phases_of_verl() -> None:
    log = parse_log("\n".join(STEP.format(n=n, gen=60.0 + n, step=125.0) for n in range(1, 7)))
    assert log is not None
    assert log.program == "verl"
    first = log.steps[0].phases
    assert (first.rollout_s, first.log_probs_s, first.update_s, first.sync_s) == (61.0, 23.0, 32.5, 5.8)
    assert (first.answer_tokens, first.longest_tokens) == (900.5, 2048.0)


def test_a_long_line_is_read_to_its_end() -> None:
    told = STEP.format(n=3, gen=60.0, step=125.0).replace("critic/score", "critic/x:1.0 - " * 400 + "critic/score")
    assert parse_log(told).steps[0].seconds == 125.0


def test_phases_of_nemo_rl() -> None:
    log = parse_log("".join(NEMO_STEP.format(n=n, gen=32.5, step=66.5 + n) for n in range(1, 5)))
    assert log is not None
    assert (log.program, [step.step for step in log.steps]) == ("NeMo-RL", [1, 2, 3, 4])
    found = log.steps[1]
    assert (found.seconds, found.loss) == (68.5, 0.1032)
    phases = found.phases
    assert (phases.rollout_s, phases.log_probs_s, phases.update_s, phases.sync_s) == (32.5, 4.78, 25.05, 0.13)
    assert phases.answer_tokens == 812.0


def asked(capsys, *words: str) -> dict:
    main(["why", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_why_puts_phases_beside_the_step_of_the_launch_file(tmp_path, capsys) -> None:
    read(tmp_path, "run.sh", VERL.format(more=""))
    log = tmp_path / "run.log"
    log.write_text("\n".join(STEP.format(n=n, gen=60.0, step=125.0) for n in range(1, 12)))
    config = str(tmp_path / "recipes/run.sh")
    (found,) = asked(capsys, str(log), "--config", config, "--on", "dgx-h100:16")["logs"]
    rows = {row["phase"]: row for row in found["phases"]}
    assert list(rows) == ["rollout", "log-probs", "update", "weight sync", "step"]
    main(["check", config, "--on", "dgx-h100:16", "--answers", "900.5,2048", "--json"])
    take = json.loads(capsys.readouterr().out)["posttrain"]["recommended"]
    assert rows["rollout"]["predicted_s"] == pytest.approx(take["rollout_s"])
    assert rows["step"]["predicted_s"] == pytest.approx(take["step_s"])
    assert rows["update"]["lost_s"] == pytest.approx(32.5 - take["update_s"])
    assert found["predicted_step_s"] is None  # the estimate is of the update alone


def test_phases_without_a_launch_file_have_shares(tmp_path, capsys) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(NEMO_STEP.format(n=n, gen=32.5, step=65.0) for n in range(1, 12)))
    (found,) = asked(capsys, str(log))["logs"]
    rollout = found["phases"][0]
    assert (rollout["measured_s"], rollout["share"], rollout["predicted_s"]) == (32.5, 0.5, None)


def test_learn_takes_the_update_of_a_step(tmp_path, capsys) -> None:
    """With the profile the update of the same launch is predicted nearer to the measured one."""
    read(tmp_path, "run.sh", VERL.format(more=""))
    config, profile = str(tmp_path / "recipes/run.sh"), str(tmp_path / "mine.toml")
    words = ["check", config, "--on", "dgx-h100:16", "--answers", "900.5,2048", "--json"]
    main(words)
    before = json.loads(capsys.readouterr().out)["posttrain"]["recommended"]["update_s"]
    log = tmp_path / "run.log"
    told = [STEP.format(n=n, gen=60.0, step=125.0).replace("actor:32.5", f"actor:{1.3 * before}") for n in range(12)]
    log.write_text("\n".join(told))
    assert main(["learn", str(log), "--config", config, "--on", "dgx-h100:16", "--out", profile, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["measured_s"] / run["predicted_s"] == pytest.approx(1.3, rel=1e-3)
    main([*words, "--profile", profile])
    after = json.loads(capsys.readouterr().out)["posttrain"]["recommended"]["update_s"]
    assert before * 1.05 < after < before * 1.35


@pytest.mark.parametrize("words", [("check", "--log"), ("learn",)])
def test_a_whole_step_is_not_learned_as_training(tmp_path, capsys, words) -> None:
    read(tmp_path, "run.sh", VERL.format(more=""))
    log = tmp_path / "run.log"
    log.write_text("\n".join(STEP.format(n=n, gen=60.0, step=125.0) for n in range(12)))
    on = ["--on", "dgx-h100:16"]
    if words[0] == "check":
        code = main(["check", str(tmp_path / "recipes/run.sh"), *on, "--log", str(log)])
    else:
        model = ["--model", "qwen3-8b", "--zero", "3", "--global-batch", "640", "--seq", "3072"]
        code = main(["learn", str(log), *model, *on, "--out", str(tmp_path / "mine.toml")])
    assert code == 2
    assert "reinforcement learning" in capsys.readouterr().err
