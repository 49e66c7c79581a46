"""More published launch files, of programs on PyTorch's and JAX's own parallelism: see public_files.py."""

from formats.public_files import PublicFile, Reported, lines

AUTOMODEL = "NVIDIA-NeMo/Automodel@36044ad3d:examples/llm_benchmark/"
SUMMARY = "its docs/performance-summary.mdx"
NANOTRON = "huggingface/nanotron@2411b022:examples/"
RECIPES = "AI-Hypercomputer/gpu-recipes@2e1fd5e:"
TITAN = "torchtitan/models/"


def benchmark(batch: int, local: int, *distributed: str, dispatcher: str = "deepep") -> str:
    """One of Automodel's."""
    return lines(
        f"step_scheduler: {{global_batch_size: {batch}, local_batch_size: {local}}}", "distributed:",
        "  strategy: fsdp2", "  tp_size: 1", "  cp_size: 1", *[f"  {setting}" for setting in distributed],
        f"model: {{backend: {{experts: gmm, dispatcher: {dispatcher}}}}}", "dataset: {seq_len: 4096}",
    )  # fmt: skip


def gpu_recipe(*settings: str) -> str:
    return lines("hardware: gpu", "max_target_length: 8192", "attention: cudnn_flash_te", *settings)


OF_TORCH = (
    PublicFile(
        f"{AUTOMODEL}qwen/qwen3_moe_30b_te_deepep.yaml", "automodel", "30b.yaml",
        benchmark(512, 4, "pp_size: 1", "ep_size: 8", "activation_checkpointing: true", "pipeline:",
                  "  pp_schedule: interleaved1f1b", "  pp_microbatch_size: 2", "  layers_per_stage: 2"),
        {"dp": 8, "pp": 1, "ep": 8, "zero": 3, "recompute": "full", "micro_batch": 4},
        {"seq": 4096, "global_batch": 512, "software": {"dispatcher": "flex"}}, gpus=8, layers=48,
        reported=Reported("qwen3-30b-a3b", "8xh100", 21.773, SUMMARY, "automodel@benchmark"),
    ),
    PublicFile(
        f"{AUTOMODEL}gpt_oss/gptoss_20b_te_deepep.yaml", "automodel", "20b.yaml",
        benchmark(256, 2, "pp_size: 1", "ep_size: 8", "sequence_parallel: false"),
        {"dp": 8, "ep": 8, "zero": 3, "recompute": "none", "micro_batch": 2}, {"global_batch": 256}, gpus=8,
        reported=Reported("gpt-oss-20b", "8xh100", 10.04, SUMMARY, "automodel@benchmark"),
    ),
    PublicFile(
        f"{AUTOMODEL}gpt_oss/gptoss_120b_te_deepep.yaml", "automodel", "120b.yaml",
        benchmark(512, 1, "pp_size: 1", "ep_size: 64", "activation_checkpointing: false", "moe:",
                  "  reshard_after_forward: false", dispatcher="hybridep"),
        {"dp": 64, "ep": 64, "zero": 3, "micro_batch": 1}, {"software": {"dispatcher": "flex"}}, gpus=64,
    ),
    PublicFile(
        f"{AUTOMODEL}nemotron/nemotron_nano_v3_te_deepep.yaml", "automodel", "nano.yaml",
        benchmark(512, 4, "pp_size: 1", "ep_size: 8", "activation_checkpointing: true"),
        {"dp": 8, "ep": 8, "recompute": "full", "micro_batch": 4}, {"global_batch": 512}, gpus=8,
        reported=Reported("nemotron-3-nano", "8xh100", 15.614, SUMMARY, "automodel@benchmark"),
    ),
    PublicFile(
        f"{AUTOMODEL}nemotron/nemotron_super_v3_te_deepep.yaml", "automodel", "super.yaml",
        benchmark(512, 2, "pp_size: 1", "ep_size: 64", "activation_checkpointing: true", dispatcher="hybridep"),
        {"dp": 64, "ep": 64, "recompute": "full", "micro_batch": 2}, {"global_batch": 512}, gpus=64,
        reported=Reported("nemotron-3-super", "dgx-h100:64", 7.286, SUMMARY, "automodel@benchmark"),
    ),
    PublicFile(
        f"{AUTOMODEL}kimi/kimi_k2_te_deepep.yaml", "automodel", "kimi.yaml",
        benchmark(512, 8, "pp_size: 8", "ep_size: 32", "activation_checkpointing: true", "pipeline:",
                  "  pp_schedule: interleaved1f1b", "  pp_microbatch_size: 1", "  layers_per_stage: 2"),
        {"dp": 32, "pp": 8, "vpp": 3, "ep": 32, "zero": 2, "micro_batch": 1, "schedule": "interleaved"},
        {"global_batch": 512}, gpus=256, layers=61,
    ),
    PublicFile(
        f"{AUTOMODEL}deepseek/deepseek_v3_te_deepep.yaml", "automodel", "v3.yaml",
        benchmark(256, 4, "pp_size: 4", "ep_size: 64", "activation_checkpointing: true", "pipeline:",
                  "  pp_schedule: interleaved1f1b", "  pp_microbatch_size: 1", "  layers_per_stage: 2",
                  dispatcher="hybridep"),
        {"dp": 64, "pp": 4, "vpp": 7, "ep": 64, "schedule": "interleaved"}, {"global_batch": 256}, gpus=256, layers=61,
    ),
    PublicFile(
        f"pytorch/torchtitan@038d5fd1b:{TITAN}llama3/train_configs/llama3_70b.toml", "torchtitan", "70b.toml",
        lines(
            "[model]", 'flavor = "70B"', '# converters = ["float8"]', "[optimizer]", 'name = "AdamW"', "[training]",
            "local_batch_size = 8", "seq_len = 8192", "[parallelism]", "data_parallel_replicate_degree = 1",
            "data_parallel_shard_degree = -1", "tensor_parallel_degree = 8  # in a node",
            "pipeline_parallel_degree = 1", "[activation_checkpoint]", 'mode = "full"', "[float8]",
            'filter_fqns = ["output"]',
        ),
        {"dp": 8, "tp": 8, "zero": 3, "recompute": "full", "micro_batch": 8, "overlap_tp": False},
        {"seq": 8192, "precision": "fsdp-mixed-reduce32", "optimizer": "adamw"}, gpus=64,
    ),
    PublicFile(
        f"pytorch/torchtitan@01424cb25:{TITAN}llama3/train_configs/llama3_8b.toml", "torchtitan", "8b.toml",
        lines(
            "[model]", 'flavor = "8B"', "[training]", "batch_size = 1", "seq_len = 8192", "[parallelism]",
            "data_parallel_shard_degree = -1", "tensor_parallel_degree = 1", "[activation_checkpoint]",
            "mode = 'selective'  # or others", "selective_ac_option = 'op'",
        ),
        {"dp": 64, "tp": 1, "zero": 3, "recompute": "selective", "micro_batch": 1}, {"seq": 8192}, gpus=64,
    ),
    PublicFile(
        f"pytorch/torchtitan@0a8d2b0a6:{TITAN}deepseek_v3/train_configs/deepseek_v3_671b.toml", "torchtitan", "v3.toml",
        lines(
            "[model]", 'flavor = "671B"', "[training]", "local_batch_size = 4", "seq_len = 4096", "[parallelism]",
            "data_parallel_shard_degree = -1", 'fsdp_reshard_after_forward = "default" # or others',
            "tensor_parallel_degree = 1", "pipeline_parallel_degree = 1",
            'pipeline_parallel_schedule = "Interleaved1F1B"', "expert_parallel_degree = 1",
            "expert_tensor_parallel_degree = 1", "[activation_checkpoint]", 'mode = "selective"',
        ),
        {"dp": 256, "pp": 1, "vpp": 1, "ep": 1, "etp": 1, "zero": 3, "micro_batch": 4}, {"seq": 4096}, gpus=256,
    ),
    PublicFile(
        "huggingface/smollm@45a1be840:pre-training/smollm1/config_smollm1_135M.yaml", "nanotron", "smollm.yaml",
        lines(
            "model:", "  dtype: bfloat16", "optimizer:", "  accumulate_grad_in_fp32: true", "  zero_stage: 0",
            "  optimizer_factory:", "    name: adamW", "parallelism:", "  dp: 64 # of 8 nodes", "  pp: 1",
            "  pp_engine: 1f1b", "  tp: 1", "  tp_linear_async_communication: true", "  tp_mode: REDUCE_SCATTER",
            "tokens:", "  batch_accumulation_per_replica: 1", "  micro_batch_size: 8", "  sequence_length: 2048",
        ),
        {"dp": 64, "tp": 1, "zero": 0, "sp": False, "micro_batch": 8},
        {"gpus": 64, "global_batch": 512, "seq": 2048, "optimizer": "adamw"},
    ),
    PublicFile(
        f"{NANOTRON}mamba/config_mamba.yaml", "nanotron", "mamba.yaml",
        lines(
            "optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}", "parallelism:", "  dp: 2", "  pp: 2",
            "  pp_engine: 1f1b", "  tp: 2", "  tp_linear_async_communication: false", "  tp_mode: ALL_REDUCE",
            "tokens: {batch_accumulation_per_replica: 1, micro_batch_size: 2, sequence_length: 2048}",
        ),
        {"dp": 2, "pp": 2, "tp": 2, "sp": False, "overlap_tp": False, "schedule": "1f1b"}, {"gpus": 8},
    ),
    PublicFile(
        f"{NANOTRON}config_qwen.yaml", "nanotron", "qwen.yaml",
        lines(
            "optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}", "parallelism:", "  context_parallel_size: 1",
            "  dp: 2", "  expert_parallel_size: 1", "  pp: 1", "  recompute_layer: false", "  tp: 2",
            "  tp_linear_async_communication: true", "  tp_mode: REDUCE_SCATTER",
            "tokens: {batch_accumulation_per_replica: 1, micro_batch_size: 3, sequence_length: 4096}",
        ),
        {"dp": 2, "tp": 2, "sp": True, "overlap_tp": True, "micro_batch": 3}, {"gpus": 4, "global_batch": 6},
    ),
    PublicFile(
        f"{RECIPES}src/frameworks/a3ultra/maxtext-configs/llama3-1-70b-256gpus-a3u-bf16.yaml", "maxtext", "a3u.yaml",
        gpu_recipe(
            "dcn_data_parallelism: 2", "dcn_fsdp_parallelism: 16", "ici_fsdp_parallelism: 8",
            "per_device_batch_size: 2", "remat_policy: save_dot_with_context_except_mlp",
        ),
        {"dp": 256, "zero": 3, "shard_group": 128, "micro_batch": 2, "recompute": "selective"},
        {"gpus": 256, "seq": 8192, "global_batch": 512, "precision": "bf16"},
        reported=Reported(
            "llama-3-70b", "dgx-h200:256", 15.516, "training/a3ultra/llama3-1-70b/maxtext-pretraining-gke/README.md"
        ),
    ),
    PublicFile(
        f"{RECIPES}src/frameworks/a3ultra/maxtext-configs/llama3-1-405b-512gpus-a3u-fp8.yaml", "maxtext", "405b.yaml",
        gpu_recipe(
            "dcn_fsdp_parallelism: 64", "ici_fsdp_parallelism: 8", "per_device_batch_size: 2", "quantization: fp8",
            "remat_policy: full",
        ),
        {"dp": 512, "zero": 3, "shard_group": 0, "recompute": "full"},
        {"gpus": 512, "global_batch": 1024, "precision": "fp8"}, gpus=512,
    ),
    PublicFile(
        "AI-Hypercomputer/maxtext@e591f30cb:src/maxtext/configs/gpu/a3/llama_2_7b/16vm.sh", "maxtext", "16vm.sh",
        lines(
            'export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true', "--xla_gpu_pipeline_all_gather=on",
            '--xla_gpu_all_reduce_combine_threshold_bytes=1073741824"',
            'python3 -m maxtext.trainers.pre_train.$EXECUTABLE "${CONFIGS:-$PWD/configs}"/llama2_7b.yml \\',
            "    run_name=$RUN_NAME dcn_data_parallelism=16 ici_fsdp_parallelism=8 profiler=xplane",
        ),
        {"dp": 128, "zero": 3, "shard_group": 8}, {"gpus": 128}, gpus=128,
    ),
    PublicFile(
        "huggingface/accelerate@16cb6eb8:examples/config_yaml_templates/multi_node.yaml", "accelerate", "nodes.yaml",
        lines("distributed_type: MULTI_GPU", "num_machines: 2", "num_processes: 8", "rdzv_backend: static # or c10d"),
        {"dp": 8, "zero": 0}, {"gpus": 8, "precision": "fp32"},
    ),
    PublicFile(
        "huggingface/accelerate@16cb6eb8:tests/tp/fsdp2_tp_preparation_config.yaml", "accelerate", "fsdp2.yaml",
        lines("distributed_type: FSDP", "mixed_precision: 'no'", "num_machines: 1", "num_processes: 4  # GPUs"),
        {"dp": 4, "zero": 3}, {"gpus": 4, "precision": "fp32"},
    ),
    PublicFile(
        "huggingface/accelerate@16cb6eb8:examples/deepspeed_config_templates/zero_stage3_offload_config.json",
        "deepspeed", "offload.json",
        '{"fp16": {"enabled": true, "loss_scale": 0}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},'
        ' "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param":'
        ' {"device": "cpu"}, "overlap_comm": true, "sub_group_size": 1e9}, "gradient_accumulation_steps": 1,'
        ' "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}',
        {"dp": 8, "zero": 3, "offload": "optimizer"}, {"precision": "fp16", "optimizer": "adamw"}, gpus=8,
    ),
    PublicFile(
        "deepspeedai/DeepSpeed@38327e07f:tests/model/Megatron_GPT2/ds_config_func_bs8_zero2_offload.json", "deepspeed",
        "zero2.json",
        '{"train_batch_size": 8, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2,'
        ' "reduce_bucket_size": 7000000, "cpu_offload": true}, "fp16": {"enabled": true}}',
        {"dp": 4, "zero": 2, "micro_batch": 2, "offload": "optimizer", "overlap_grad": False},
        {"global_batch": 8, "precision": "fp16"}, gpus=4,
    ),
    PublicFile(
        "deepspeedai/DeepSpeed@38327e07f:tests/model/Megatron_GPT2/ds_config_perf_bs16.json", "deepspeed", "perf.json",
        '{"train_batch_size": 16, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1},'
        ' "disable_allgather": true, "gradient_clipping": 1.0, "fp16": {"enabled": true}}',
        {"dp": 16, "zero": 1, "micro_batch": 1, "offload": "none"}, {"global_batch": 16}, gpus=16,
    ),
)  # fmt: skip
