"""Launch files that others published: what each says about the split, restated in as few lines, and what must be read.

`source` is repository@commit:path. Only facts are taken over: names and values of settings.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reported:
    """What was measured with a file, as its publisher says."""

    model: str
    on: str
    step_s: float
    where: str
    stack: str = ""
    """of the program as it was then; empty: the target's"""


@dataclass(frozen=True)
class PublicFile:
    source: str
    target: str
    name: str
    text: str
    policy: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    gpus: int | None = None
    layers: int | None = None
    reported: Reported | None = None


def lines(*given: str) -> str:
    return "\n".join(given) + "\n"


FIRST = (
    PublicFile(
        "NVIDIA/Megatron-LM@d98e8a64dd:examples/gpt3/train_gpt3_175b_distributed.sh", "megatron", "gpt3.sh",
        lines(
            "GPUS=8", "NODES=1", "SPLIT=(", "  --tensor-model-parallel-size 8 ",
            "  --pipeline-model-parallel-size 16 ", ")",
            "BATCH=(--micro-batch-size 1 --global-batch-size 1536 --fp16)",
            "torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py --seq-length 2048 ${SPLIT[@]} ${BATCH[@]}",
        ),
        {"dp": 8, "tp": 8, "pp": 16, "vpp": 1, "zero": 0, "sp": False, "recompute": "none"},
        {"seq": 2048, "global_batch": 1536, "precision": "fp16", "gpus": 1024}, gpus=1024,
    ),
    PublicFile(
        "NVIDIA/Megatron-LM@d98e8a64dd:examples/mixtral/train_mixtral_8x7b_distributed.sh", "megatron", "mixtral.sh",
        lines(
            'NNODES=${SLURM_NNODES:-"1"}', "EXPERTS=(", "  --overlap-param-gather", "  --overlap-grad-reduce", ")",
            "SPLIT=(--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8)",
            "SPLIT+=(--use-distributed-optimizer --sequence-parallel)",
            "torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py --seq-length 4096 --bf16 \\",
            "  --micro-batch-size 1 --global-batch-size 256 ${EXPERTS[@]} \\", "  ${SPLIT[@]}",
        ),
        {"dp": 16, "tp": 1, "pp": 4, "ep": 8, "zero": 1, "overlap_grad": True, "overlap_param": True},
        {"seq": 4096, "global_batch": 256, "precision": "bf16", "gpus": 64}, gpus=64,
    ),
    PublicFile(
        "NVIDIA/Megatron-LM@d98e8a64dd:examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh", "megatron", "fsdp.sh",
        lines(
            'SHARDING=${SHARDING_STRATEGY:-"optim_grads_params"}', "TP_SIZE=1", 'DTYPE="fp8"',
            "ARGS=(--use-megatron-fsdp --data-parallel-sharding-strategy ${SHARDING}", "  --ckpt-format fsdp_dtensor",
            "  # --num-distributed-optimizer-instances 2", "  --tensor-model-parallel-size $TP_SIZE --bf16)",
            'if [[ "$DTYPE" == "fp8" ]]; then', '  ARGS+=("--fp8-format" hybrid)', "fi",
            "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py ${ARGS[@]} --overlap-grad-reduce \\",
            "  --overlap-param-gather --micro-batch-size 1 --global-batch-size 128 --seq-length 8192",
        ),
        {"dp": 8, "tp": 1, "zero": 3, "shard_group": 0, "overlap_param": True},
        {"precision": "fp8-grad32", "gpus": 8},
    ),
    PublicFile(
        "AMD-AGI/Primus@fd1eeabb:examples/megatron/configs/MI300X/grok1-BF16-pretrain.yaml", "primus", "grok.yaml",
        lines(
            "workspace: ${PRIMUS_WORKSPACE:./output}", "modules:", "  pre_trainer:", "    framework: megatron",
            "    overrides:", "      micro_batch_size: 2", "      global_batch_size: 128", "      seq_length: 8192",
            "      tensor_model_parallel_size: 1", "      pipeline_model_parallel_size: 4",
            "      num_virtual_stages_per_pipeline_rank: 4", "      expert_model_parallel_size: 8",
            "      overlap_grad_reduce: true", "      overlap_param_gather: true",
            "      recompute_granularity: full", "      recompute_method: block", "      recompute_num_layers: 8",
        ),
        {"dp": 16, "pp": 4, "vpp": 4, "ep": 8, "micro_batch": 2, "recompute": "full", "recompute_layers": 32},
        {"seq": 8192, "global_batch": 128}, gpus=64,
    ),
    PublicFile(
        "AMD-AGI/Primus@fd1eeabb:examples/megatron/configs/MI300X/llama3.1_70B-BF16-pretrain.yaml", "primus",
        "70b.yaml",
        lines(
            "modules:", "  pre_trainer:", "    framework: megatron", "    overrides:", "      micro_batch_size: 3",
            "      global_batch_size: 24", "      tensor_model_parallel_size: 1", "      use_torch_fsdp2: true",
            "      use_distributed_optimizer: false", "      overlap_param_gather: false", "      sequence_parallel: 1",
            "      recompute_granularity: full", "      recompute_method: block", "      recompute_num_layers: 80",
            "      lr_decay_iters: null", "      cross_entropy_loss_fusion: true",
        ),
        {"dp": 8, "zero": 3, "micro_batch": 3, "recompute": "full", "recompute_layers": 80, "loss": "fused"},
        {"global_batch": 24}, gpus=8,
    ),
    PublicFile(
        "NVIDIA-NeMo/Automodel@36044ad3d:examples/llm_benchmark/llama3_3/"
        "custom_llama3_1_70b_pretrain_benchmark_8nodes.yaml", "automodel", "70b.yaml",
        lines(
            "step_scheduler: {global_batch_size: 128, local_batch_size: 1}", "dataset: {seq_len: 8192}",
            "model: {torch_dtype: bf16}", "distributed:", "  strategy: fsdp2", "  dp_size: null", "  tp_size: 1",
            "  cp_size: 2", "  pp_size: 1", "  sequence_parallel: False", "  activation_checkpointing: True",
            "  reshard_after_forward: True",
        ),
        {"dp": 32, "cp": 2, "tp": 1, "zero": 3, "recompute": "full", "micro_batch": 1},
        {"seq": 8192, "global_batch": 128}, gpus=64,
        reported=Reported(
            "llama-3-70b", "dgx-h100:64", 18.90, "its docs/performance-summary.mdx", "automodel@benchmark"
        ),
    ),
    PublicFile(
        "NVIDIA-NeMo/Automodel@36044ad3d:examples/llm_benchmark/llama3_3/llama_3_3_70b_instruct_squad_peft_pp.yaml",
        "automodel", "pp.yaml",
        lines(
            "step_scheduler: {global_batch_size: 32, local_batch_size: 2}", "distributed:", "  strategy: fsdp2",
            "  dp_size: none", "  tp_size: 4", "  pp_size: 2", "  activation_checkpointing: true", "  pipeline:",
            "    pp_schedule: interleaved1f1b", "    pp_microbatch_size: 1", "    layers_per_stage: 4",
        ),
        {"dp": 1, "tp": 4, "pp": 2, "vpp": 10, "schedule": "interleaved", "sp": False, "micro_batch": 1},
        {"global_batch": 32}, gpus=8, layers=80,
    ),
    PublicFile(
        "pytorch/torchtitan@v0.2.2:torchtitan/models/llama3/train_configs/llama3_405b.toml", "torchtitan", "405b.toml",
        lines(
            "[model]", 'flavor = "405B"', 'converters = ["float8"]', "[training]",
            "local_batch_size = 2", "seq_len = 8192",
            "[parallelism]", "data_parallel_replicate_degree = 1", "data_parallel_shard_degree = -1",
            "tensor_parallel_degree = 8  # 8-way TP", "enable_async_tensor_parallel = true",
            "pipeline_parallel_degree = 1", "[activation_checkpoint]", 'mode = "full"', "[compile]", "enable = true",
        ),
        {"dp": 64, "tp": 8, "zero": 3, "overlap_tp": True, "recompute": "full", "micro_batch": 2},
        {"seq": 8192, "precision": "fsdp-fp8-reduce32"}, gpus=512,
    ),
    PublicFile(
        "huggingface/nanotron@2411b022:examples/config_tiny_llama.yaml", "nanotron", "tiny.yaml",
        lines(
            "parallelism:", "  dp: 4", "  pp: 1", "  tp: 2", "  pp_engine: 1f1b", "  tp_mode: REDUCE_SCATTER",
            "  tp_linear_async_communication: true", "optimizer:", "  zero_stage: 0", "  accumulate_grad_in_fp32: true",
            "tokens:", "  micro_batch_size: 3", "  sequence_length: 4096", "  batch_accumulation_per_replica: 1",
        ),
        {"dp": 4, "tp": 2, "pp": 1, "zero": 0, "sp": True, "overlap_tp": True, "micro_batch": 3},
        {"seq": 4096, "global_batch": 12, "gpus": 8, "precision": "bf16"},
    ),
    PublicFile(
        "huggingface/accelerate@16cb6eb8:examples/config_yaml_templates/fsdp.yaml", "accelerate", "fsdp.yaml",
        lines(
            "distributed_type: FSDP", "mixed_precision: 'bf16'", "num_processes: 2", "fsdp_config:",
            "  fsdp_activation_checkpointing: false", "  fsdp_offload_params: false",
            "  fsdp_sharding_strategy: FULL_SHARD", "  fsdp_use_orig_params: true",
        ),
        {"dp": 2, "zero": 3, "recompute": "none"}, {"gpus": 2, "precision": "bf16"},
    ),
    PublicFile(
        "huggingface/accelerate@16cb6eb8:tests/deepspeed/ds_config_zero3.json", "deepspeed", "zero3.json",
        '{"bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},'
        ' "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},'
        ' "overlap_comm": true, "reduce_bucket_size": "auto"}, "gradient_accumulation_steps": 1,'
        ' "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}',
        {"dp": 8, "zero": 3, "offload": "optimizer", "overlap_grad": True}, {"optimizer": "adamw"}, gpus=8,
    ),
    PublicFile(
        "AI-Hypercomputer/gpu-recipes@2e1fd5e:src/frameworks/a3mega/maxtext-configs/llama-2-7b-128gpus-a3mega-bf16.yaml",
        "maxtext", "7b.yaml",
        lines(
            "hardware: gpu", "dcn_data_parallelism: 16", "ici_fsdp_parallelism: 8", "per_device_batch_size: 4",
            "max_target_length: 4096", "attention: cudnn_flash_te", "remat_policy: minimal_flash",
        ),
        {"dp": 128, "zero": 3, "shard_group": 8, "micro_batch": 4, "recompute": "selective"},
        {"seq": 4096, "gpus": 128, "global_batch": 512},
    ),
    PublicFile(
        "verl-project/verl@1dda039b9:examples/dppo_trainer/run_qwen3_30b_a3b_megatron.sh", "verl", "ppo.sh",
        lines(
            "actor_tp=${ACTOR_TP:-2}", "actor_pp=${ACTOR_PP:-1}", "actor_ep=${ACTOR_EP:-8}",
            "actor_etp=${ACTOR_ETP:-1}",
            "ACTOR=(actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${actor_tp}",
            "  actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=${actor_pp}",
            "  actor_rollout_ref.actor.megatron.expert_model_parallel_size=${actor_ep}",
            "  actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=${actor_etp}",
            "  actor_rollout_ref.actor.ppo_mini_batch_size=${PPO_MINI_BATCH_SIZE:-32}",
            "  +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform",
            "  +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full",
            "  +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1)",
            'python3 -m verl.trainer.main_ppo "${ACTOR[@]}" trainer.nnodes=${NNODES:-1} trainer.n_gpus_per_node=8',
        ),
        {"dp": 4, "tp": 2, "pp": 1, "ep": 8, "etp": 1, "recompute": "full", "zero": 1, "sp": True},
        {"gpus": 8, "global_batch": 32},
    ),
    PublicFile(
        "NVIDIA/Megatron-LM@d98e8a64dd:tests/functional_tests/test_cases/gpt/gpt3_7b_tp1_pp4_memory_speed/"
        "model_config.yaml", "megatron", "model_config.yaml",
        lines(
            "ENV_VARS:", "  CUDA_DEVICE_MAX_CONNECTIONS: 1", "MODEL_ARGS:", "  --num-layers: 32",
            "  --tensor-model-parallel-size: 1", "  --pipeline-model-parallel-size: 4",
            "  --num-layers-per-virtual-pipeline-stage: 1", "  --micro-batch-size: 1", "  --global-batch-size: 8",
            "  --seq-length: 8192", "  --use-distributed-optimizer: true", "  --bf16: true",
        ),
        {"dp": 2, "pp": 4, "vpp": 8, "micro_batch": 1, "zero": 1, "schedule": "interleaved"},
        {"seq": 8192, "global_batch": 8, "precision": "bf16"}, gpus=8,
    ),
)  # fmt: skip
