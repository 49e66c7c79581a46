"""What an export says of itself: what is still to be filled in, and how to try it; switches with their values."""

import pytest

from shardwise.programs.formats import read_launch
from shardwise.show.cli import main

JOB = ["qwen3-0.6b", "--on", "2xh100", "--zero", "0", "--micro", "1", "--global-batch", "4", "--seq", "64",
       "--recompute", "none"]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("trl", "# fill in: MODEL_PATH, DATASET"),
        ("accelerate", "# a few steps on tiny data: SCRIPT=smoke.py bash train.sh --max_steps 2"),
        ("deepspeed", "# a few steps on tiny data: SCRIPT=smoke.py bash train.sh"),
        ("megatron", "# a few steps on tiny data: bash train.sh --train-iters 3"),
    ],
)
def test_a_script_ends_with_what_is_missing_and_a_trial(target, said, tmp_path):
    assert main(["export", *JOB, "--to", target, "--out", str(tmp_path / "launch")]) in (0, 1)
    end = (tmp_path / "launch" / "train.sh").read_text().rpartition('"$@"')[2]
    assert said in end
    trial = tmp_path / "launch" / "smoke.py"
    assert trial.exists() == (target != "megatron")
    if trial.exists():
        compile(trial.read_text(), trial.name, "exec")


def test_switches_of_trl_have_their_values(tmp_path):
    """`--bf16` alone ends its parser: the option has no value of its own."""
    assert main(["export", *JOB, "--to", "trl", "--out", str(tmp_path / "launch")]) in (0, 1)
    script = (tmp_path / "launch" / "train.sh").read_text()
    assert "--packing True" in script
    assert "--bf16 True" in script


def test_a_model_of_torchtitan_keeps_its_name(tmp_path):
    assert main(["export", *JOB, "--to", "torchtitan", "--out", str(tmp_path / "launch")]) in (0, 1)
    assert 'name = "qwen3"\nflavor = "0.6B"' in (tmp_path / "launch" / "train.toml").read_text()


@pytest.mark.parametrize(
    ("settings", "zero"),
    [
        ("{fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_sharding_strategy: FULL_SHARD}", 2),
        ("{fsdp_version: 1, fsdp_sharding_strategy: SHARD_GRAD_OP}", 2),
        ("{fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_sharding_strategy: SHARD_GRAD_OP}", 3),
    ],
)
def test_the_second_fsdp_goes_by_what_is_kept_after_forward(settings, zero, tmp_path):
    """accelerate 1.15, utils/dataclasses.py: sharding_strategy is only warned about there."""
    (tmp_path / "a.yaml").write_text(f"distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {settings}\n")
    assert read_launch([tmp_path / "a.yaml"])[1].policy.zero == zero


def test_a_switch_beside_an_adapter_quantises_it(tmp_path):
    words = (
        "--per_device_train_batch_size 2 --model_name_or_path Qwen/Qwen-7B --use_lora --q_lora --model_max_length 512"
    )
    (tmp_path / "run.sh").write_text(f"export CUDA_VISIBLE_DEVICES=0\npython finetune.py {words}\n")
    found = read_launch([tmp_path / "run.sh"])[1]
    assert found.tune.startswith("qlora")
    assert found.gpus == 1
