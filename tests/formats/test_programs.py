"""A program is told by what starts it; what is of no program here is refused by its name, whatever --target says."""

import pytest

from shardwise.programs.formats import Known, read_launch
from shardwise.programs.formats._programs import started
from shardwise.programs.formats._registry import readers
from shardwise.programs.formats._unmodelled import without_influence
from shardwise.spec.software import stack_of

HF = "torchrun --nproc_per_node 4 train.py --model_name_or_path me/a-7b --per_device_train_batch_size 2 "


def read(tmp_path, text, name="run.sh", target="", **files):
    (tmp_path / name).write_text(text)
    for other, inside in files.items():
        (tmp_path / other.replace("_json", ".json").replace("_yaml", ".yaml")).write_text(inside)
    return read_launch([tmp_path / name], Known(), target)


@pytest.mark.parametrize(
    ("words", "program", "first"),
    [
        ("torchrun --nproc_per_node 8 -m verl.trainer.main_ppo a=1", "verl.trainer.main_ppo", "a=1"),
        ("python -m torch.distributed.run --nnodes 2 pretrain_gpt.py --x 1", "pretrain_gpt.py", "--x"),
        ("megatron sft --model m", "megatron sft", "--model"),
        ("deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --a 1", "openrlhf.cli.train_sft", "--a"),
        ("ray job submit --address x -- python3 train.py --actor-num-nodes 1", "train.py", "--actor-num-nodes"),
        ("python deepy.py train.py -d configs 6-7B.yml", "deepy.py", "train.py"),
        ("accelerate launch --config_file a.yaml -m axolotl.cli.train b.yml", "axolotl.cli.train", "b.yml"),
    ],
)
def test_what_a_command_starts(words, program, first):
    command = started(words.split())
    assert (command.program, command.arguments[0]) == (program, first)


@pytest.mark.parametrize(
    ("text", "name", "title"),
    [
        ("colossalai run --nproc_per_node 8 train.py --plugin zero2\n", "a.sh", "train.py"),
        ("python open_instruct/grpo_fast.py --per_device_train_batch_size 1\n", "a.sh", "open-instruct"),
        ("dump_dir: x\noptim: {lr: 1}\ndistributed: {fsdp_type: full_shard, tp_size: 1}\n", "a.yaml", "lingua"),
        ("torchrun -m xtuner.v1.train.cli.sft --config a.py\n", "a.sh", "XTuner"),
        ("python tools/run_text_generation_server.py --tensor-model-parallel-size 2\n", "a.sh", "does not train"),
    ],
)
def test_strangers_are_refused_by_name(tmp_path, text, name, title):
    for target in ("", "megatron"):
        with pytest.raises(ValueError, match=title) as refused:
            read(tmp_path, text, name, target)
        assert "\n" not in str(refused.value)


def test_a_target_makes_no_file_readable(tmp_path):
    with pytest.raises(ValueError, match="of ms_swift_megatron, not of megatron"):
        read(tmp_path, "megatron sft --model m --tensor_model_parallel_size 2\n", target="megatron")


def test_zero_is_never_guessed(tmp_path):
    with pytest.raises(ValueError, match=r"deepspeed is conf/z3\.json, which is not here"):
        read(tmp_path, HF + "--deepspeed conf/z3.json\n")
    stage = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"}}'
    form, found = read(tmp_path, HF + "--deepspeed conf/z3.json --bf16 True\n", z3_json=stage)
    assert form.name == "transformers"
    assert (found.policy.zero, found.policy.offload, found.policy.dp) == (3, "optimizer", 4)
    assert (found.global_batch, found.precision, found.stack) == (8, "bf16", "deepspeed")


def test_other_defaults_than_megatron_s(tmp_path):
    _, plain = read(tmp_path, "python pretrain_gpt.py --tensor-model-parallel-size 2 --expert-model-parallel-size 2\n")
    _, swift = read(tmp_path, "NPROC_PER_NODE=4 megatron sft --model m --tensor_model_parallel_size 2 "
                              "--expert_model_parallel_size 2\n")  # fmt: skip
    assert (plain.policy.zero, plain.policy.etp, plain.software["dispatcher"]) == (0, 2, "allgather")
    assert (swift.policy.zero, swift.policy.etp, swift.software["dispatcher"]) == (1, 1, "alltoall")
    assert (swift.policy.recompute, swift.global_batch) == ("selective", 16)


def test_an_update_has_prompts_times_answers(tmp_path):
    _, found = read(tmp_path, "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=1 "
                              "actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.n=5 "
                              "actor_rollout_ref.model.lora_rank=32 data.max_prompt_length=512 "
                              "data.max_response_length=1024\n")  # fmt: skip
    assert (found.global_batch, found.seq, found.tune) == (320, 1536, "lora,rank=32,targets=all")
    assert (found.policy.zero, found.policy.dp) == (3, 8)


def test_a_comment_ends_with_its_line(tmp_path):
    script = "# --tensor-model-parallel-size 8 \\\npython pretrain_gpt.py --tensor-model-parallel-size 2\n"
    assert read(tmp_path, script)[1].policy.tp == 2


def test_idle_settings_are_a_program_s_own():
    assert without_influence("lora_alpha '16'", "trl")
    assert not without_influence("lora_alpha '16'", "megatron")
    assert not without_influence("gradient_checkpointing 'true'", "trl")


def test_every_program_is_priced_by_one_that_there_is() -> None:
    assert {form.stack: stack_of(form.stack).name for form in readers().values()}
