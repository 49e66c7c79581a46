"""Nothing that decides the answer is passed over: it is read, named or refused. Classes of errors on public files."""

import pytest

from shardwise.programs.formats import read_launch

GPT = ("--num-layers 12 --hidden-size 768 --num-attention-heads 12 --micro-batch-size 4 --global-batch-size 256 --fp16 "
       "--tensor-model-parallel-size 1 ")  # fmt: skip


def read(tmp_path, name, text, **beside):
    for other, content in beside.items():
        (tmp_path / other.replace("_json", ".json")).write_text(content)
    (tmp_path / name).write_text(text)
    return read_launch([tmp_path / name])


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        # pytorch/torchtitan: run_train.sh since 0.3.0; its configurations are functions
        ("torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_debugmodel", "seq_len"),
        # epfLLM/Megatron-LLM: examples/pretrain_t5_distributed_with_mp.sh
        (f"python pretrain_t5.py {GPT} --encoder-seq-length 512 --decoder-seq-length 128", "pretrain_gpt.py"),
        # epfLLM/Megatron-LLM: examples/msdp/prompt_knwl_gen.sh
        (f"python tasks/msdp/main.py {GPT} --seq-length 2048 --task MSDP-PROMPT", "not read"),
        # aws-samples/awsome-distributed-training: bionemo_2.5/train-esm.sbatch
        (f"python train_esm2.py {GPT} --max-seq-length 1024 --num-gpus 8", "not read"),
        # deepspeedai/Megatron-DeepSpeed: examples_deepspeed/MoE/ds_pretrain_gpt_125M_MoE64.sh
        (
            "GPUS=$(($(ds_ssh nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)-2))\n"
            "if [[ 64 -gt $GPUS ]]; then EP=$GPUS; else EP=64; fi\n"
            f"deepspeed pretrain_gpt.py {GPT} --seq-length 2048 --num-experts 64 --moe-expert-parallel-size $EP",
            "moe_expert_parallel_size",
        ),
    ],
    ids=["torchtitan", "t5", "generation", "bionemo", "experts"],
)
def test_what_is_not_a_known_training_is_refused(text, cure, tmp_path):
    with pytest.raises(ValueError, match=cure):
        read(tmp_path, "train.sh", text)


def test_a_fragment_of_another_programs_configuration_is_refused(tmp_path):
    # volcengine/verl: verl/trainer/config/engine/megatron.yaml
    text = "_target_: verl.workers.config.McoreEngineConfig\ntensor_model_parallel_size: 1\nseed: 42\n"
    with pytest.raises(ValueError, match="no known program"):
        read(tmp_path, "megatron.yaml", text)


def test_stages_that_a_script_splits_itself_are_named(tmp_path):
    # deepspeedai/DeepSpeedExamples: training/pipeline_parallelism/run.sh
    stated = '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8}'
    _, found = read(
        tmp_path, "run.sh", "deepspeed train.py --deepspeed_config=ds.json -p 2 --steps=200", ds_json=stated
    )
    assert any(text.startswith(("p 2", "p '2'")) for text in found.not_modelled)
    assert found.gpus is None or found.policy.dp > 1


def test_ranks_of_mpirun_count(tmp_path):
    # deepspeedai/DeepSpeedExamples: training/BingBertSquad/1-bit_adam/mpi_ethernet/run_squad_mpi_onebitadam.sh
    text = "mpirun -n 32 -npernode 8 -x NCCL_DEBUG=INFO python train.py --deepspeed_config ds.json"
    stated = '{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 3, "fp16": {"enabled": true}}'
    _, found = read(tmp_path, "run.sh", text, ds_json=stated)
    assert (found.gpus, found.policy.dp, found.global_batch) == (32, 32, 96)


def test_how_a_trainers_model_is_shared_is_not_guessed_in_silence(tmp_path):
    # huggingface/open-r1: recipes/OlympicCoder-32B/sft/config_v00.00.yaml, started by accelerate with zero3.yaml
    text = "model_name_or_path: Qwen/Qwen2.5-Coder-32B-Instruct\nmax_length: 22528\npacking: false\n"
    _, found = read(tmp_path, "config.yaml", text + "per_device_train_batch_size: 1\nbf16: true\n")
    assert any("accelerate" in note and "name that file" in note for note in found.notes)


def test_parameters_on_the_host_are_named(tmp_path):
    # tatsu-lab/stanford_alpaca: configs/default_offload_opt_param.json
    zero = '{"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}'
    text = '{"zero_optimization": ' + zero + "}"
    _, found = read(tmp_path, "ds.json", text)
    assert found.gpus is None
    assert any(text.startswith("offload_param") for text in found.not_modelled)


def test_a_recipe_of_automodel(tmp_path):
    # NVIDIA-NeMo/Automodel: examples/vlm_finetune/gemma4/gemma4_4b.yaml
    text = (
        "step_scheduler: {global_batch_size: 8, local_batch_size: 1}\n"
        "model: {pretrained_model_name_or_path: google/gemma-4-E4B-it, torch_dtype: torch.bfloat16,\n"
        "  attn_implementation: eager}\n"
        "distributed: {strategy: fsdp2, dp_size: none, tp_size: 1, cp_size: 1}\n"
        "peft: {_target_: nemo_automodel.components._peft.lora.PeftConfig, match_all_linear: true, dim: 16}\n"
        "optimizer: {_target_: torch.optim.AdamW, lr: 1e-5}\n"
        "freeze_config: {freeze_embeddings: true, freeze_vision_tower: true, freeze_language_model: false}\n"
    )
    _, found = read(tmp_path, "recipe.yaml", text)
    assert (found.called, found.freeze, found.tune) == ("google/gemma-4-E4B-it", "vision", "lora,rank=16,targets=all")
    assert (found.policy.attention, found.policy.zero, found.gpus) == ("plain", 3, None)
    assert any("freeze_embeddings" in text for text in found.not_modelled)
