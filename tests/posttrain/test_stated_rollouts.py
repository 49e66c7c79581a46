"""Launch files of five programs as steps of reinforcement learning: what they say, what of it is not priced."""

import json

import pytest
from stated_files import APART, NEMO, OPENRLHF, PRIME, TRL, VERL, read

from shardwise.show.cli import main


def test_nemo_rl_over_its_defaults(tmp_path) -> None:
    found = read(tmp_path, "grpo.yaml", NEMO)
    stated, policy = found.rollout, found.policy
    assert (stated.program, stated.algorithm, stated.prompts, stated.group) == ("nemo-rl", "grpo", 64, 32)
    assert (stated.layout, stated.engine_tp, stated.engine_share, stated.lag) == ("colocated", 4, 0.7, 0)
    assert (stated.updates, stated.reference, stated.gpus) == (4, False, 32)
    assert (policy.tp, policy.pp, policy.dp, policy.micro_batch, policy.sp) == (4, 4, 2, 1, True)
    assert stated.prompt_tokens + stated.cap == found.seq == 4096


def test_nemo_rl_apart(tmp_path) -> None:
    text = NEMO[: NEMO.index("  generation:")] + APART.lstrip("\n") + "cluster: {gpus_per_node: 8, num_nodes: 4}\n"
    found = read(
        tmp_path, "grpo.yaml", text.replace("32}", "32, async_grpo: {enabled: true, max_trajectory_age_steps: 2}}")
    )
    assert (found.rollout.layout, found.rollout.rollout_gpus, found.gpus, found.rollout.lag) == ("split", 16, 16, 2)


def test_verl(tmp_path) -> None:
    stated = read(tmp_path, "run.sh", VERL.format(more="")).rollout
    assert (stated.prompts, stated.group, stated.prompt_tokens, stated.cap) == (512, 5, 1024, 2048)
    assert (stated.layout, stated.lag, stated.updates, stated.reference) == ("colocated", 0, 4, True)
    assert (stated.engine_tp, stated.engine_share, stated.gpus, stated.refused) == (2, 0.6, 16, ())


def test_verl_apart(tmp_path) -> None:
    text = VERL.format(more="rollout.nnodes=1 rollout.n_gpus_per_node=8")
    stated = read(
        tmp_path, "run.sh", text.replace("verl.trainer.main_ppo", "recipe.one_step_off_policy.main_ppo")
    ).rollout
    assert (stated.layout, stated.rollout_gpus, stated.gpus, stated.lag) == ("split", 8, 24, 1)


def test_openrlhf(tmp_path) -> None:
    found = read(tmp_path, "run.sh", OPENRLHF.format(more=""))
    stated = found.rollout
    assert (stated.algorithm, stated.prompts, stated.group, stated.updates) == ("rloo", 128, 8, 8)
    assert (stated.layout, stated.rollout_gpus, stated.gpus, stated.reference) == ("split", 16, 32, False)
    together = read(tmp_path, "run.sh", OPENRLHF.format(more="--train.colocate_all")).rollout
    assert (together.layout, together.rollout_gpus, together.gpus) == ("colocated", None, 16)


def test_prime_rl(tmp_path) -> None:
    found = read(tmp_path, "rl.toml", PRIME.replace("TASKS", "i3_math"))
    stated = found.rollout
    assert (stated.prompts, stated.group, stated.cap, stated.lag) == (16, 16, 2048, 4)
    assert (stated.rollout_gpus, found.gpus, stated.gpus, stated.engine_tp, stated.refused) == (6, 2, 8, 2, ())


def test_trl(tmp_path) -> None:
    stated = read(tmp_path, "run.sh", TRL.format(more="")).rollout
    assert (stated.prompts, stated.group, stated.cap, stated.layout) == (8, 8, 1024, "colocated")
    assert (stated.engine_tp, stated.engine_share, stated.reference, stated.refused) == (2, 0.3, True, ())


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("run.sh", VERL.format(more="actor_rollout_ref.rollout.multi_turn.enable=True"), "tools"),
        ("run.sh", VERL.format(more="reward_model.enable=True"), "scored by a model"),
        ("run.sh", VERL.format(more="").replace("Qwen3-8B", "Qwen2.5-VL-7B-Instruct"), "pictures"),
        ("run.sh", VERL.format(more="").replace("=grpo", "=remax"), "remax"),
        ("run.sh", VERL.format(more="").replace("name=vllm", "name=hf"), "engine hf"),
        ("run.sh", OPENRLHF.format(more="--train.agent_func_path agent.py"), "tools"),
        ("run.sh", OPENRLHF.format(more="--reward.model_name_or_path some/rm"), "scored by a model"),
        ("rl.toml", PRIME.replace("TASKS", "wiki-search"), "tools"),
        ("run.sh", TRL.format(more="").replace("--use_vllm true", ""), "without an engine"),
        ("grpo.yaml", NEMO.replace("32}", "32, max_rollout_turns: 4}"), "tools"),
        ("grpo.yaml", NEMO.replace("32}", "32, use_dynamic_sampling: true}"), "dynamic_sampling"),
        ("grpo.yaml", NEMO.replace("Qwen3-32B", "Qwen3-VL-32B"), "pictures"),
    ],
)  # fmt: skip
def test_what_is_not_priced_is_named(tmp_path, name: str, text: str, word: str) -> None:
    assert any(word in why for why in read(tmp_path, name, text).rollout.refused)


def checked(capsys, *words: str) -> dict:
    code = main(["check", *words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    return found


def test_check_prices_the_whole_step_as_posttrain_does(tmp_path, capsys) -> None:
    read(tmp_path, "grpo.yaml", NEMO)
    found = checked(capsys, str(tmp_path / "recipes/grpo.yaml"), "--on", "dgx-h100:32", "--answers", "3200,3584")
    take = found["posttrain"]["recommended"]
    assert (take["mode"], take["engine_tp"], take["policy"]["tp"], take["policy"]["pp"]) == ("colocated", 4, 4, 4)
    words = ["posttrain", "qwen3-32b", "--on", "dgx-h100:32", "--prompts", "64", "--group", "32", "--lengths",
             "3200,3584", "--updates", "4", "--layout", "colocated", "--engine-tp", "4", "--engine-share", "0.7",
             "--no-reference", "--fix", "tp=4,pp=4,cp=1,ep=1,recompute=none,sp=on,zero=1,shard_group=0"]  # fmt: skip
    assert main([*words, "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)["recommended"]
    assert take["step_s"] == pytest.approx(asked["step_s"], rel=1e-6)
    assert found["rollout"]["prompts"] == 64


def test_check_judges_the_trainers_part_of_a_split_cluster(tmp_path, capsys) -> None:
    read(tmp_path, "run.sh", OPENRLHF.format(more=""))
    found = checked(capsys, str(tmp_path / "recipes/run.sh"), "--model", "qwen2.5-7b", "--on", "dgx-h100:32")
    assert (found["legal"], found["policy"]["dp"]) == (True, 16)
    take = found["posttrain"]["recommended"]
    assert (take["rollout_gpus"], take["train_gpus"], take["lag"]) == (16, 16, 1)


def test_check_says_why_a_step_is_not_priced(tmp_path, capsys) -> None:
    read(tmp_path, "run.sh", VERL.format(more="actor_rollout_ref.rollout.multi_turn.enable=True"))
    found = checked(capsys, str(tmp_path / "recipes/run.sh"), "--on", "dgx-h100:16")
    assert found.get("posttrain") is None
    assert any("not priced" in note and "tools" in note for note in found["notes"])
    assert found["judged"]


def test_lengths_of_answers_without_a_rollout_are_refused(tmp_path, capsys) -> None:
    read(tmp_path, "run.sh", VERL.format(more=""))
    assert main(["check", str(tmp_path / "recipes/run.sh"), "--answers", "3200,3584"]) == 2
    assert "answers: " in capsys.readouterr().err
