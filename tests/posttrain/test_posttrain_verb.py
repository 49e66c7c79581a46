"""The verb: its numbers add up, its limits hold, what it cannot know is refused with the cure."""

import json

import pytest

from shardwise.show.cli import main

SMALL = ["posttrain", "llama-3.1-8b", "--on", "8xh100", "--prompts", "32", "--group", "8", "--lengths", "600,2048"]


def answer(capsys, *words: str) -> dict:
    code = main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    return found


def test_phases_of_a_colocated_step_add_up(capsys):
    found = answer(capsys, *SMALL, "--layout", "colocated")
    take = found["recommended"]
    assert (take["mode"], take["lag"], take["train_gpus"]) == ("colocated", 0, 8)
    phases = sum(take[name] for name in ("rollout_s", "log_probs_s", "update_s", "sync_s", "other_s"))
    assert take["step_s"] == pytest.approx(phases)
    assert sum(row["seconds"] for row in found["phases"]) == pytest.approx(phases)
    assert take["samples_per_hour"] == pytest.approx(3600 * 256 / take["step_s"])
    assert all(row["used_bytes"] <= row["limit_bytes"] for row in found["memory"])


def test_sides_of_a_split_step_overlap(capsys):
    found = answer(capsys, *SMALL, "--layout", "split", "--lag", "1", "--rollout-gpus", "4")
    take = found["recommended"]
    assert (take["rollout_gpus"], take["train_gpus"]) == (4, 4)
    longer = max(take["rollout_s"], take["log_probs_s"] + take["update_s"])
    assert take["step_s"] == pytest.approx(longer + take["sync_s"] + take["other_s"])


def test_more_lag_is_never_slower(capsys):
    steps = [
        answer(capsys, *SMALL, "--layout", "split", "--lag", lag, "--engine-tp", "1")["best"][0]["step_s"]
        for lag in ("1", "2", "4")
    ]
    assert steps == sorted(steps, reverse=True)


def test_dpo_rolls_nothing_out(capsys):
    take = answer(capsys, *SMALL, "--algorithm", "dpo")["recommended"]
    assert take["mode"] == "colocated"
    assert take["rollout_s"] == take["sync_s"] == 0


def test_ppo_trains_a_critic_besides(capsys):
    policy, critic = (
        answer(capsys, *SMALL, "--layout", "colocated", "--algorithm", name, "--fix", "tp=1,pp=1,recompute=full,zero=3")
        for name in ("grpo", "ppo")
    )
    assert critic["recommended"]["update_s"] == pytest.approx(2 * policy["recommended"]["update_s"], rel=0.05)
    assert critic["recommended"]["rollout_s"] == policy["recommended"]["rollout_s"]


def test_other_gpus_may_roll_out(capsys):
    found = answer(capsys, *SMALL, "--rollout-on", "8xh20")
    assert found["recommended"]["mode"] == "split"
    assert found["gpus"] == 16


@pytest.mark.parametrize(
    ("words", "field", "cure"),
    [
        (["--algorithm", "grp"], "algorithm", "grpo"),
        (["--stack", "vrl"], "stack", "verl"),
        (["--lengths", "3000"], "lengths", "3000,8192"),
        (["--lengths", "reasonin"], "lengths", "reasoning"),
        (["--lengths", "lognormal,mean=600,sigma=1"], "cap", "--cap"),
        (["--lag", "soon"], "lag", "any"),
        (["--rollout-gpus", "8"], "rollout-gpus", "leave some"),
        (["--prompts", "100000"], "prompts", "at most"),
        (["--rollout-on", "8xh20", "--layout", "colocated"], "rollout-on", "leave --layout out"),
    ],
)
def test_bad_questions_name_field_and_cure(capsys, words, field, cure):
    given = SMALL[:4] if words[0] in SMALL else SMALL
    assert main([*given, *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert field in said
    assert cure in said


def test_a_compressed_cache_is_refused(capsys):
    assert main(["posttrain", "deepseek-v4-flash", "--on", "8xh100"]) == 2
    assert "compressed cache" in capsys.readouterr().err


def test_what_does_not_fit_says_so(capsys):
    found = answer(capsys, "posttrain", "llama-3.1-405b", "--on", "8xh100")
    assert found["recommended"] is None
    assert found["losers"]


def test_a_run_of_many_steps_has_failures_saves_and_rent(capsys):
    words = [*SMALL, "--steps", "1000"]
    run, other = (answer(capsys, *words, "--failures", rates)["run"] for rates in ("llama-3", "off"))
    assert run["failures"] > 0 == other["failures"]
    assert run["seconds"] > other["seconds"]
    assert run["goodput"] < 1
    assert run["usd"][1] > other["usd"][1]


def test_a_reward_model_scores_on_the_trainers_gpus(capsys):
    words = [*SMALL, "--layout", "colocated", "--fix", "tp=2", "--fix", "zero=1"]
    ruled, scored = answer(capsys, *words), answer(capsys, *words, "--reward-model", "llama-3.1-8b")
    reward = scored["recommended"]["reward_s"]
    assert ruled["recommended"]["reward_s"] == 0
    assert reward == pytest.approx(
        scored["recommended"]["log_probs_s"] / 2, rel=0.01
    )  # one pass of policy and reference
    assert scored["recommended"]["step_s"] == pytest.approx(ruled["recommended"]["step_s"] + reward)


def test_the_course_of_three_steps_is_that_of_their_phases(capsys):
    for layout, lag in (("colocated", "0"), ("split", "1")):
        found = answer(capsys, *SMALL, "--layout", layout, "--lag", lag)
        course, take = found["course"], found["recommended"]
        updates = [task for task in course["tasks"] if task["phase"] == "update"]
        assert len(updates) == 3
        assert all(task["end_s"] - task["start_s"] == pytest.approx(take["update_s"]) for task in updates)
        assert max(task["end_s"] for task in course["tasks"]) == pytest.approx(course["seconds"])
        assert all(0 <= point["in_flight"] <= course["slots"] for point in course["flow"])
        if lag == "0":
            assert course["seconds"] == pytest.approx(3 * take["step_s"])


def test_an_engine_that_does_not_sleep_or_a_trainer_that_stays_takes_memory(capsys):
    words = [*SMALL, "--layout", "colocated"]
    awake = {role["role"]: role for role in answer(capsys, *words, "--stack", "trl")["memory"]}
    assert "waiting engine" in awake["update"]["holds"]
    refused = answer(capsys, *words, "--no-offload", "--engine-share", "0.95", "--fix", "zero=0")
    assert refused["recommended"] is None
    assert any("leave" in why or "takes" in why for why in refused["losers"])


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--group", "1"), "group: 1"), (("--engine-tp", "3"), "engine-tp: 3"), (("--failures", "daily"), "failures")],
)
def test_what_makes_no_step_is_refused(words, said, capsys):
    assert main(["posttrain", "llama-3.1-8b", "--on", "8xh100", *words]) == 2
    assert said in capsys.readouterr().err
