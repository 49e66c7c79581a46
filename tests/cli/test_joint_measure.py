"""`plan --joint` and `plan --measure`: answers that hold together, and mistakes answered in one line."""

import json
import shlex
import sys

import pytest

from shardwise.show.cli import _measure, _trial_runs, main
from shardwise.show.cli._trial_runs import TrialOutcome, TrialPlace, by_command, checked_command, policy_words, step_in
from shardwise.spec.policy import Policy

PLAN = "plan gpt2 --on 4xv100 --seq 1024 --global-batch 32 --top 2"
FAKE = """
import json, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if words["--pp"] != "1":
    sys.exit("out of memory")
print("a line of its own")
print(json.dumps({"step_s": 0.5 + 0.1 * int(words["--tp"])}))
"""


def answered(capsys, words):
    code = main(shlex.split(words))
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def command(tmp_path):
    script = tmp_path / "trial.py"
    script.write_text(FAKE)
    return f"{sys.executable} {script} {{policy}}"


def test_joint_is_the_plan_or_better(capsys):
    code, told = answered(capsys, f"{PLAN} --joint --json")
    assert code == 0
    joint = told["joint"]
    assert joint["best_objective"] <= told["best"][0]["step_s"] * (1 + 1e-12)
    assert joint["planned_objective"] == pytest.approx(told["best"][0]["step_s"])
    assert joint["bound"] <= joint["best_objective"]
    assert list(joint["methods"]) == ["dp"]


def test_mixed_clusters_name_the_part_of_each_stage(capsys):
    words = "plan llama-3-8b --on 4xh100 --mixed 4xa100-80 --link '100 Gbps' --seq 4096 --global-batch 64 --top 1"
    code, told = answered(capsys, f"{words} --joint --json")
    assert code == 0
    best = told["joint"]["best"]
    assert {stage["on"] for stage in best["stages"]} == {"4xh100", "4xa100-80"}
    assert sum(best["layers"]) == 32
    assert len(best["layers"]) == len(best["stages"]) == len(best["stage_s"])
    assert told["joint"]["gain"] > 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--methods dp", "write --joint too"),
        ("--joint --mixed 4xa100-80 --link '100 Gbps' --sync local_sgd,every=8", "leave --sync or --mixed out"),
        ("--mixed 4xv100", "write --joint too"),
        ("--joint --methods best", "'best' is unknown"),
        ("--joint --mixed 4xv100", "--link"),
        ("--joint --link '10 Gbps'", "--link"),
        ("--joint --mixed 4xv100 --link 10", "unit"),
        ("--joint --rent 2", "--per-dollar"),
        ("--joint --per-dollar --rent 1,2,3", "1 prices"),
        ("--joint --routing no-such-file", "no file"),
        ("--measure 0", "1 to 100"),
        ("--measure 3", "--stack shardwise"),
        ("--measure-with 'x {policy}'", "--measure 8 too"),
        ("--measure 3 --measure-with 'x {shape}'", "{shape}"),
        ("--measure 3 --measure-with 'x y'", "names no policy"),
        ('--measure 3 --measure-with "x \'"', "not a command line"),
        ("--measure 3 --measure-with 'x {tp}' --measure-limit 5", "unit"),
        ("--measure 3 --measure-with 'no-such-command {tp}'", "cannot be started"),
        ("--measure 3 --measure-with 'x {tp}' --sync any", "leave --sync out"),
        ("--measure 3 --measure-with 'x {tp}' --measure-device cpu", "leave --measure-device out"),
        ("--measure-device cpu", "--measure 8 too"),
        ("--measure 3 --stack shardwise --measure-device tpu", "'tpu' is unknown"),
        ("--measure 3 --stack shardwise --dp 4", "--measure-device cpu"),
        ("--joint --lengths uniform,low=100,high=900", "leave one of"),
    ],
)
def test_mistakes_are_answered_in_one_line(capsys, more, words):
    assert main(shlex.split(f"{PLAN} {more}")) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert len(told.err.strip().splitlines()) == 1


def test_trials_learn_and_are_kept(capsys, command, tmp_path):
    profile = tmp_path / "learned.toml"
    words = f"{PLAN} --measure 4 --measure-with {shlex.quote(command)} --json"
    code, told = answered(capsys, f"{words} --learned {profile}")
    assert code == 0
    trials = told["measure"]["trials"]
    assert 1 <= len(trials) <= 4
    assert len({json.dumps(trial["policy"], sort_keys=True) for trial in trials}) == len(trials)
    ran = [trial for trial in trials if trial["step_s"] is not None]
    for trial in ran:
        assert trial["step_s"] == pytest.approx(0.5 + 0.1 * trial["policy"]["tp"])
    best = min(ran, key=lambda trial: trial["step_s"])
    taken = told["measure"]["ranked"][0]
    assert taken["policy"] == told["measure"]["take"]
    assert (taken["measured_s"] or taken["expected_s"]) <= best["step_s"]
    _, again = answered(capsys, f"{words} --profile {profile}")
    known = {json.dumps(trial["policy"], sort_keys=True) for trial in trials}
    assert not known & {json.dumps(trial["policy"], sort_keys=True) for trial in again["measure"]["trials"]}


def test_only_failures_are_an_exit_code(capsys):
    code, told = answered(capsys, f"{PLAN} --measure 2 --measure-with 'false {{tp}}' --json")
    assert code == 1
    assert [trial["step_s"] for trial in told["measure"]["trials"]] == [None, None]
    assert all("exit code 1" in trial["why"] for trial in told["measure"]["trials"])


def test_an_interruption_keeps_what_was_measured(capsys, monkeypatch, tmp_path):
    calls = []

    def runner(_words, _limit):
        def run(policy):
            calls.append(policy)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return TrialOutcome(1.0)

        return run

    monkeypatch.setattr(_measure, "by_command", runner)
    profile = tmp_path / "kept.toml"
    code, told = answered(capsys, f"{PLAN} --measure 5 --measure-with 'x {{tp}}' --learned {profile} --json")
    assert code == 0
    assert len(told["measure"]["trials"]) == 1
    assert any("interrupted" in note for note in told["measure"]["notes"])
    assert "step_s = 1.0" in profile.read_text()


def test_trials_of_another_machine_do_not_count(capsys, command, tmp_path):
    """A profile may hold trials that ran on processors: they are kept, and say nothing of the GPUs planned for."""
    profile = tmp_path / "learned.toml"
    words = f"{PLAN} --measure 1 --measure-with {shlex.quote(command)} --json"
    answered(capsys, f"{words} --learned {profile}")
    profile.write_text(profile.read_text().replace("step_s = ", 'on = "cpu", step_s = '))
    _, told = answered(capsys, f"{words} --learned {profile} --profile {profile}")
    assert not any("of the profile count" in note for note in told["measure"]["notes"])
    assert profile.read_text().count('policy = "--tp') == 2


def test_what_run_refuses_is_told_as_refused(capsys, monkeypatch):
    """Exit code 2 of `shardwise run`: the policy never began."""
    for module in (_measure, _trial_runs):
        monkeypatch.setattr(module, "place_of", lambda *_: TrialPlace("cuda"))
    real, ends = _trial_runs._timed, ["sh", "-c", "echo error: why >&2; exit 2"]
    monkeypatch.setattr(_trial_runs, "_timed", lambda _, *rest, refusal: real(ends, *rest, refusal=refusal))
    code, told = answered(capsys, f"{PLAN} --measure 2 --stack shardwise --json")
    assert code == 1
    assert {(trial["refused"], trial["why"]) for trial in told["measure"]["trials"]} == {(True, "refused: why")}


def test_a_trial_that_takes_too_long_is_ended():
    outcome = by_command(checked_command("sleep 60 {tp}"), 0.3)(Policy())
    assert outcome.step_s is None
    assert "not done" in outcome.why


def test_a_profile_of_another_s_is_not_overwritten(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("a = 1\n")
    assert main(shlex.split(f"{PLAN} --measure 1 --measure-with 'true {{tp}}' --learned {mine}")) == 2
    assert mine.read_text() == "a = 1\n"


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ('{"step_s": 2.5}', 2.5), ('log\n{"step_s": 1}\n{"step_s": 2}\n', 2.0), ("nothing", None),
        ('{"step_s": -1}', None),
        ('{"step_s": true}', None), ('{"steps": [{"step_s": 9}, {"step_s": 2}, {"step_s": 4}, {"step_s": 2}]}', 3.0),
        ('{"steps": []}', None), ("{" * 5000, None), ('{"step_s": 1e400}', None),
    ],
)  # fmt: skip
def test_where_the_step_stands_in_an_output(text, step):
    assert step_in(text) == step


def test_policy_words_are_flags():
    words = policy_words(Policy(tp=2, pp=4, dp=1, zero=1, micro_batch=2, recompute="full"))
    assert words[:8] == ["--tp", "2", "--pp", "4", "--dp", "1", "--zero", "1"]
    assert "--recompute" in words


@pytest.mark.parametrize("words", ["plan llama-3-70b --on 8xl40s --tp 4", "plan llama-3-405b --on 8xl40s --tp 8"])
def test_nothing_fits_is_an_answer(capsys, words):
    """With policies whose bounds leave hope, and with none."""
    code, told = answered(capsys, f"{words} --joint --json")
    assert code == 1
    assert told["best"] == []
    assert told["joint"]["fits"] is False
    assert told["joint"]["best"] is None
    assert main([*shlex.split(words), "--joint"]) == 1
    assert "nothing fits, however the stages are filled" in capsys.readouterr().out
