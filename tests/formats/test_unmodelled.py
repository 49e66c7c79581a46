"""What a policy does not hold: it is priced as a setting of the program, or it is named as read and not modelled."""

import json

import pytest

from launches import launch_of
from shardwise.programs.formats import Known, expressed, format_of, formats, read_launch
from shardwise.programs.formats._unmodelled import not_stated, without_influence
from shardwise.show.cli import main
from shardwise.spec.policy import Policy

MEGATRON = "python pretrain_gpt.py --tensor-model-parallel-size 1 --micro-batch-size 1 "


def read(tmp_path, text, name="a.sh", gpus=64, layers=32):
    (tmp_path / name).write_text(text)
    return read_launch([tmp_path / name], Known(gpus, layers))[1]


@pytest.mark.parametrize(
    ("name", "text", "software"),
    [
        ("a.sh", MEGATRON + "--context-parallel-size 2 --cp-comm-type a2a", {"context_parallel": "ulysses"}),
        ("a.sh", MEGATRON + "--context-parallel-size 2 --cp-comm-type a2a+p2p", {"context_parallel": "ring"}),
        ("a.sh", MEGATRON + "--cp-comm-type a2a", {}),
        ("a.sh", MEGATRON + "--expert-model-parallel-size 8", {"dispatcher": "allgather"}),
        ("a.sh", MEGATRON + "--expert-model-parallel-size 8 --moe-enable-deepep", {"dispatcher": "flex"}),
        ("a.sh", MEGATRON + "--moe-token-dispatcher-type alltoall", {}),
        (
            "a.yaml",
            "distributed: {strategy: fsdp2, ep_size: 8}\nmodel: {backend: {dispatcher: hybridep}}\n",
            {"dispatcher": "flex"},
        ),
        (
            "a.toml",
            '[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = "allgather"\n',
            {"context_parallel": "gather"},
        ),
        (
            "a.yaml",
            "distributed_type: FSDP\nnum_processes: 8\nparallelism_config:\n  parallelism_config_sp_size: 4\n",
            {"context_parallel": "ulysses"},
        ),
        ("a.yaml", "ici_context_parallelism: 2\ncontext_parallel_strategy: ring\n", {"context_parallel": "ring"}),
        (
            "a.json",
            '{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 4}',
            {"context_parallel": "ulysses"},
        ),
    ],
)
def test_settings_of_the_program_are_read(tmp_path, name, text, software):
    assert read(tmp_path, text, name).software == software


def test_they_change_the_prediction(tmp_path, capsys):
    words = ["--model", "mixtral-8x7b", "--on", "dgx-h100:64", "--global-batch", "256", "--seq", "4096", "--json"]
    steps = []
    for kind in ("alltoall", "allgather"):
        script = tmp_path / "a.sh"
        script.write_text(
            MEGATRON + "--pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --use-distributed-optimizer "
            f"--bf16 --moe-token-dispatcher-type {kind}\n"
        )
        main(["check", str(script), *words])
        steps.append(json.loads(capsys.readouterr().out)["step_s"])
    assert steps[1] > steps[0], "every expert's rank gets every token"


@pytest.mark.parametrize(
    ("words", "layers"),
    [
        ("--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7", (5, 10, 10, 7)),
        (
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --num-layers 30",
            (7, 8, 8, 7),
        ),
        ("--decoder-first-pipeline-num-layers 8", ()),
    ],
)
def test_uneven_stages_in_other_words(tmp_path, words, layers):
    assert read(tmp_path, MEGATRON + "--pipeline-model-parallel-size 4 " + words).layers == layers


def test_uneven_stages_that_do_not_add_up(tmp_path):
    with pytest.raises(ValueError, match="a split of 32 layers over 4 stages"):
        read(tmp_path, MEGATRON + "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7")


def test_what_changes_a_step_is_named(tmp_path):
    found = read(
        tmp_path,
        MEGATRON + "--fp8-format hybrid --fp8-recipe delayed --moe-expert-capacity-factor 1.0 --log-interval 5 "
        "--fine-grained-activation-offloading --activation-offload-fraction 0.5 --moe-shared-expert-overlap false",
    )
    assert [text.split(":")[0] for text in found.not_modelled] == [
        "fp8_recipe 'delayed'", "moe_expert_capacity_factor '1.0'",
        "fine_grained_activation_offloading", "activation_offload_fraction '0.5'",
    ]  # fmt: skip
    assert all(": " in text for text in found.not_modelled)
    assert "log_interval '5'" in found.unmodelled
    assert not set(found.unmodelled) & {text.split(": ")[0] for text in found.not_modelled}
    assert read(tmp_path, MEGATRON + "--fp8-format hybrid --fp8-recipe tensorwise").not_modelled == ()


def test_an_order_without_a_price_says_what_it_changes(tmp_path):
    found = read(
        tmp_path,
        MEGATRON + "--pipeline-model-parallel-size 4 --context-parallel-size 2 --use-tp-pp-dp-mapping",
    )
    (note,) = [note for note in found.not_modelled if "mapping" in note]
    assert "neighbouring stages are 2 ranks apart and not 16, replicas 8 and not 2" in note


def test_export_says_what_a_file_leaves_open():
    policy = Policy(dp=8, ep=8, zero=3)
    said = {}
    for name, target in formats().items():
        launch = launch_of(target, policy, "mixtral-8x7b", target.versions[0] if target.versions else "")
        try:
            launch, _ = expressed(target, launch)
        except ValueError:
            continue
        said[name] = not_stated(target, launch)
    assert said["megatron"] == []
    assert "tokens that travel to experts" in said["automodel"][0]


def test_the_dispatcher_is_written():
    target = format_of("megatron")
    launch, _ = expressed(target, launch_of(target, Policy(dp=8, ep=8), "mixtral-8x7b"))
    assert "--moe-token-dispatcher-type alltoall" in target.write(launch).files["train.sh"]


@pytest.mark.parametrize(("setting", "idle"), [
    ("lr '3e-4'", True), ("training.steps '50'", True), ("tokenizer_type 'NullTokenizer'", True), ("mock_data", True),
    ("save_interval '100'", True), ("micro_batch_size '2'", False), ("compile True", False), ("use_my_kernels", False),
    ("steps_per_expert '4'", False), ("tensor_log_split '2'", False),
])  # fmt: skip
def test_only_settings_known_to_be_idle_are_called_so(setting, idle):
    assert without_influence(setting, "megatron") is idle
