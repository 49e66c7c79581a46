"""More published launch files, of programs with Megatron's settings: see public_files.py."""

from formats.public_files import PublicFile, Reported, lines

MEGATRON = "NVIDIA/Megatron-LM@d98e8a64dd:"
CASES = f"{MEGATRON}tests/functional_tests/test_cases/"
PRIMUS = "AMD-AGI/Primus@fd1eeabb:examples/megatron/configs/"
VERL = "verl-project/verl@1dda039b9:examples/"
ACTOR = "actor_rollout_ref.actor.megatron."


def case(*settings: str) -> str:
    """A functional test's arguments."""
    return lines("MODEL_ARGS:", *[f"  --{setting}" for setting in settings])


def overrides(*settings: str) -> str:
    return lines("modules:", "  pre_trainer:", "    framework: megatron", "    overrides:",
                 *[f"      {setting}" for setting in settings])  # fmt: skip


OF_MEGATRON = (
    PublicFile(
        f"{MEGATRON}examples/llama/train_llama3_8b_h100_fp8.sh", "megatron", "llama3_8b.sh",
        lines(
            "GPUS_PER_NODE=8", "NUM_NODES=1", "TP_SIZE=1", "CP_SIZE=1", "DTYPE=fp8", "SEQ_LENGTH=8192",
            "LAUNCH=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES)",
            "ARGS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --attention-backend fused",
            "  --micro-batch-size 1 --global-batch-size 128 --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion)",
            "DTYPE_ARGS=()", 'if [[ "$DTYPE" == "fp8" ]]; then', "  DTYPE_ARGS+=(", '    "--fp8-format hybrid"',
            '    "--fp8-param-gather"', "  )", "fi",
            "SPLIT=(--tensor-model-parallel-size $TP_SIZE --context-parallel-size $CP_SIZE",
            "  --sequence-parallel  # with tp", "  --use-distributed-optimizer --overlap-grad-reduce",
            "  --overlap-param-gather)",
            "torchrun ${LAUNCH[@]} pretrain_gpt.py ${ARGS[@]} ${DTYPE_ARGS[@]} ${SPLIT[@]} --seq-length $SEQ_LENGTH",
        ),
        {"dp": 8, "tp": 1, "zero": 1, "overlap_grad": True, "overlap_param": True, "loss": "fused", "sp": False},
        {"gpus": 8, "seq": 8192, "global_batch": 128, "precision": "fp8-grad16"},
    ),
    PublicFile(
        f"{MEGATRON}examples/t5/train_t5_220m_distributed.sh", "megatron", "t5.sh",
        lines(
            "GPUS_PER_NODE=8", "NUM_NODES=1", 'LAUNCH="', "    --nproc_per_node $GPUS_PER_NODE \\",
            "    --nnodes $NUM_NODES \\", '"', 'ARGS="', "    --encoder-num-layers 12 \\",
            "    --micro-batch-size 64 \\", "    --global-batch-size 512 \\", "    --bf16 \\",
            "    --tensor-model-parallel-size 1 \\", "    --pipeline-model-parallel-size 1 \\", '"',
            "torchrun $LAUNCH pretrain_t5.py \\", "    $ARGS",
        ),
        {"dp": 8, "tp": 1, "pp": 1, "micro_batch": 64, "zero": 0},
        {"gpus": 8, "global_batch": 512, "precision": "bf16", "seq": None},
    ),
    PublicFile(
        f"{MEGATRON}examples/gptoss/02_train.sh", "megatron", "gptoss.sh",
        lines(
            "GPUS_PER_NODE=8", "NUM_NODES=${NUM_NODES:-1}", "WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))",
            "PP_SIZE=${WORLD_SIZE}", "EP_SIZE=1",
            "ARGS=(--micro-batch-size 1 --global-batch-size 128 --bf16 --recompute-activations --sequence-parallel",
            "  --tensor-model-parallel-size 1 --pipeline-model-parallel-size ${PP_SIZE}",
            "  --expert-model-parallel-size ${EP_SIZE} --moe-token-dispatcher-type alltoall --fp8-format hybrid)",
            "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py ${ARGS[@]}",
        ),
        {"dp": 1, "pp": 8, "ep": 1, "recompute": "selective"}, {"gpus": 8, "precision": "fp8-grad32", "software": {}},
    ),
    PublicFile(
        f"{CASES}gpt/gpt3_mcore_te_tp2_pp2_cp2_etp4_dp_last/model_config.yaml", "megatron", "mapping.yaml",
        case(
            "num-layers: 12", "micro-batch-size: 4", "global-batch-size: 32", "seq-length: 1024",
            "tensor-model-parallel-size: 2", "pipeline-model-parallel-size: 2", "context-parallel-size: 2",
            "sequence-parallel: true", "bf16: true", "use-tp-pp-dp-mapping: true", "expert-tensor-parallel-size: 4",
        ),
        {"dp": 2, "tp": 2, "pp": 2, "cp": 2, "etp": 4, "sp": True, "micro_batch": 4, "order": "tp-cp-dp-pp"},
        {"seq": 1024, "global_batch": 32}, gpus=16,
    ),
    PublicFile(
        f"{CASES}gpt/gpt3_mcore_te_tp1_pp2_cp4_a2a_p2p_nondeterministic/model_config.yaml", "megatron", "a2a.yaml",
        case(
            "num-layers: 12", "micro-batch-size: 4", "global-batch-size: 32", "tensor-model-parallel-size: 1",
            "pipeline-model-parallel-size: 2", "context-parallel-size: 4", "cp-comm-type: a2a+p2p",
            "hierarchical-context-parallel-sizes: 2 2", "sequence-parallel: true", "attention-backend: flash",
        ),
        {"dp": 1, "pp": 2, "cp": 4, "sp": False}, {"software": {"context_parallel": "ring"}}, gpus=8,
    ),
    PublicFile(
        f"{CASES}mixtral/deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release/model_config.yaml", "megatron", "flex.yaml",
        case(
            "tensor-model-parallel-size: 2", "pipeline-model-parallel-size: 4",
            "pipeline-model-parallel-layout: Et*2|(tt|)*5t|tmL", "expert-model-parallel-size: 16",
            "expert-tensor-parallel-size: 1", "use-distributed-optimizer: true", "overlap-grad-reduce: true",
            "overlap-param-gather: true", "sequence-parallel: true", "micro-batch-size: 1", "global-batch-size: 512",
            "seq-length: 4096", "num-layers: 14 # of 61", "moe-token-dispatcher-type: flex",
            "moe-flex-dispatcher-backend: hybridep", "bf16: true",
        ),
        {"dp": 8, "tp": 2, "pp": 4, "vpp": 2, "ep": 16, "etp": 1, "zero": 1, "schedule": "interleaved"},
        {"layers": (2, 2, 2, 2, 2, 2, 1, 1), "software": {"dispatcher": "flex"}, "global_batch": 512}, gpus=64,
    ),
    PublicFile(
        f"{CASES}gpt/gpt3_mcore_te_tp2_zp_z3_resume_fsdp_dtensor/model_config.yaml", "megatron", "z3.yaml",
        case(
            "num-layers: 12", "micro-batch-size: 4", "global-batch-size: 32", "seq-length: 1024",
            "tensor-model-parallel-size: 2", "use-megatron-fsdp: true",
            "data-parallel-sharding-strategy: optim_grads_params", "use-distributed-optimizer: true", "bf16: true",
        ),
        {"dp": 4, "tp": 2, "zero": 3, "sp": False}, {"precision": "bf16", "global_batch": 32}, gpus=8,
    ),
    PublicFile(
        f"{CASES}nemotron/nemotron3_super_release_gb200/model_config.yaml", "megatron", "super.yaml",
        case(
            "tensor-model-parallel-size: 2", "pipeline-model-parallel-size: 1", "expert-model-parallel-size: 64",
            "expert-tensor-parallel-size: 1", "use-distributed-optimizer: true", "overlap-grad-reduce: true",
            "overlap-param-gather: true", "sequence-parallel: true", "micro-batch-size: 1", "global-batch-size: 512",
            "seq-length: 8192", "moe-token-dispatcher-type: flex", "bf16: true", "grad-reduce-in-bf16: true",
            "fp8-format: e4m3", "first-last-layers-bf16: true", "fp8-recipe: mxfp8",
        ),
        {"dp": 64, "tp": 2, "ep": 64, "etp": 1, "zero": 1, "sp": True},
        {
            "precision": "mxfp8-grad16", "seq": 8192, "software": {"dispatcher": "flex"},
            "not_modelled": ("first_last_layers_bf16 'true': which layers stay in bf16",),
        }, gpus=128,
    ),
    PublicFile(
        f"{CASES}moe/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading/model_config.yaml", "megatron",
        "offloading.yaml",
        case(
            "tensor-model-parallel-size: 2", "pipeline-model-parallel-size: 2", "expert-model-parallel-size: 4",
            "expert-tensor-parallel-size: 1", "attention-backend: unfused", "sequence-parallel: true",
            "micro-batch-size: 1", "global-batch-size: 8", "recompute-granularity: selective",
            'recompute-modules: "[layernorm mla_up_proj mlp moe_act]"', "use-distributed-optimizer: true",
            "pipeline-model-parallel-layout: Et*3|(tt|)*6mL", "moe-token-dispatcher-type: alltoall",
        ),
        {
            "dp": 2, "tp": 2, "pp": 2, "vpp": 4, "ep": 4, "attention": "plain", "recompute": "selective",
            "recompute_modules": ("mla_up_proj", "layernorm", "moe_act", "mlp"),
        },
        {"layers": (3, 2, 2, 2, 2, 2, 2, 0), "software": {"dispatcher": "alltoall"}}, gpus=8,
    ),
    PublicFile(
        f"{CASES}mixtral/mixtral_8x22b_tp2pp8ep8vpp1_release/model_config.yaml", "megatron", "8x22b.yaml",
        case(
            "tensor-model-parallel-size: 2", "pipeline-model-parallel-size: 8", "use-distributed-optimizer: true",
            "overlap-grad-reduce: true", "overlap-param-gather: true", "sequence-parallel: true",
            "micro-batch-size: 1", "global-batch-size: 256", "num-layers: 56", "expert-model-parallel-size: 8",
            "moe-token-dispatcher-type: alltoall", "bf16: true",
        ),
        {"dp": 8, "tp": 2, "pp": 8, "vpp": 1, "ep": 8, "etp": 2, "zero": 1},
        {"software": {"dispatcher": "alltoall"}, "global_batch": 256}, gpus=128,
    ),
    PublicFile(
        f"{CASES}mixtral/mixtral_8x7b_tp1pp4ep8vpp8_release/model_config.yaml", "megatron", "vpp8.yaml",
        case(
            "pipeline-model-parallel-size: 4", "tensor-model-parallel-size: 2", "expert-tensor-parallel-size: 1",
            "num-layers-per-virtual-pipeline-stage: 1", "num-layers: 32", "expert-model-parallel-size: 8",
            "sequence-parallel: true", "micro-batch-size: 1", "global-batch-size: 256", "bf16: true",
            "moe-token-dispatcher-type: alltoall",
        ),
        {"dp": 8, "tp": 2, "pp": 4, "vpp": 8, "ep": 8, "etp": 1, "schedule": "interleaved", "overlap_pp": True},
        {"software": {"dispatcher": "alltoall"}}, gpus=64,
    ),
    PublicFile(
        f"{CASES}gpt/gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split/model_config.yaml",
        "megatron", "counted.yaml",
        case(
            "num-layers: 6", "micro-batch-size: 4", "global-batch-size: 32", "tensor-model-parallel-size: 1",
            "pipeline-model-parallel-size: 4", "num-virtual-stages-per-pipeline-rank: 2",
            "account-for-embedding-in-pipeline-split: true", "account-for-loss-in-pipeline-split: true",
        ),
        {"dp": 2, "pp": 4, "vpp": 2}, {"layers": (0, 1, 1, 1, 1, 1, 1, 0)}, gpus=8,
    ),
    PublicFile(
        "swiss-ai/pretrain-code@dba94a7b6:pretraining/submit_apertus_70b.sh", "megatron", "apertus.sh",
        lines(
            "#SBATCH --nodes=1024", "#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=4", "GBS=4096",
            "SEQ_LEN=4096", "SHAPE=(", "\t--num-layers 80", "\t--hidden-size 8192", "\t--num-attention-heads 64", ")",
            "BATCH=(", "\t--micro-batch-size 1", "\t--global-batch-size $GBS", "\t--cross-entropy-loss-fusion",
            "\t--rampup-batch-size 2048 2048 1072164864", ")", "SPLIT=(", "\t--tensor-model-parallel-size 4",
            "\t--pipeline-model-parallel-size 8", "\t--use-distributed-optimizer", "\t--overlap-grad-reduce",
            "\t--overlap-param-gather", "\t--sequence-parallel", "\t--num-layers-per-virtual-pipeline-stage 2",
            "\t--context-parallel-size 1", ")", 'COMMAND="python3 $DIR/pretrain_gpt.py \\', "    ${SHAPE[@]} \\",
            "    ${BATCH[@]} --bf16 \\", '    ${SPLIT[@]} --seq-length $SEQ_LEN"',
            'srun --cpus-per-task 36 -lu bash -c "RANK=\\$SLURM_PROCID numactl --membind=0-3 $COMMAND"',
        ),
        {"dp": 128, "tp": 4, "pp": 8, "vpp": 5, "zero": 1, "sp": True, "overlap_pp": True, "loss": "fused"},
        {"gpus": 4096, "seq": 4096, "global_batch": 4096, "precision": "bf16"},
    ),
    PublicFile(
        "swiss-ai/pretrain-code@142c68de0:long_context/training_scripts/70B/70b-64k_30b.sh", "megatron", "64k.sh",
        lines(
            "#SBATCH --nodes=256", "#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=4", "MBS=1", "GBS=256",
            "SEQ_LEN=65536", "SPLIT=(", "\t--tensor-model-parallel-size $SLURM_GPUS_PER_NODE",
            "\t--sequence-parallel", "\t--pipeline-model-parallel-size 8",
            "\t--num-layers-per-virtual-pipeline-stage 2", "\t--context-parallel-size 8",
            "\t--use-distributed-optimizer", ")",
            'COMMAND="python3 pretrain_gpt.py --num-layers 80 --bf16 --micro-batch-size $MBS \\',
            '    --global-batch-size $GBS --seq-length $SEQ_LEN ${SPLIT[@]}"', 'srun -lu bash -c "$COMMAND"',
        ),
        {"dp": 4, "tp": 4, "pp": 8, "vpp": 5, "cp": 8, "zero": 1, "overlap_grad": False},
        {"gpus": 1024, "seq": 65536, "global_batch": 256},
    ),
    PublicFile(
        "bigscience-workshop/bigscience@003b25057:train/tr11-176B-ml/tr11-176B-ml.slurm", "megatron", "bloom.slurm",
        lines(
            "#SBATCH --nodes=48", "#SBATCH --ntasks-per-node=1          # one for each node", "#SBATCH --gres=gpu:8",
            "GPUS_PER_NODE=8", "NNODES=$SLURM_NNODES", "TP_SIZE=4", "PP_SIZE=12", "MICRO_BATCH_SIZE=2", "ZERO_STAGE=0",
            'GPT_ARGS=" \\', "    --pp-partition-method 'type:transformer|embedding' \\", "    --num-layers 70 \\",
            "    --hidden-size 14336 \\", "    --num-attention-heads 112 \\", "    --seq-length 2048 \\",
            "    --micro-batch-size $MICRO_BATCH_SIZE \\", "    --rampup-batch-size 192 16 9_765_625 \\",
            "    --global-batch-size 2048 \\", "    --bf16 \\", "    --checkpoint-activations \\", '    "',
            'config_json="./ds_config.$SLURM_JOB_ID.json"', "cat <<EOT > $config_json",
            '{"zero_optimization": {"stage": $ZERO_STAGE}}', "EOT",
            'export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"',
            'export CMD=" `pwd`/pretrain_gpt.py --tensor-model-parallel-size $TP_SIZE \\',
            '    --pipeline-model-parallel-size $PP_SIZE $GPT_ARGS --zero-stage ${ZERO_STAGE}"', "echo $CMD",
            'srun --wait=60 bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" 2>&1 | tee log.txt',
        ),
        {"dp": 8, "tp": 4, "pp": 12, "zero": 1, "recompute": "full", "micro_batch": 2, "sp": False},
        {"gpus": 384, "seq": 2048, "global_batch": 2048, "precision": "bf16"},
        reported=Reported(
            "bloom-176b", "jean-zay-a100:384", 105.22, "its chronicles.md (a line of its log)", "deepspeed@bigscience"
        ),
    ),
    PublicFile(
        f"{PRIMUS}MI300X/deepseek_v3-BF16-pretrain.yaml", "primus", "v3.yaml",
        overrides(
            "micro_batch_size: 4", "global_batch_size: 256", "seq_length: ${PRIMUS_SEQ_LENGTH:4096}",
            "tensor_model_parallel_size: ${PRIMUS_TP:1}", "pipeline_model_parallel_size: ${PRIMUS_PP:1}",
            "expert_model_parallel_size: ${PRIMUS_EP:8}", "overlap_grad_reduce: true", "overlap_param_gather: true",
            "mtp_num_layers: null", 'cross_entropy_fusion_impl: "te"', "cross_entropy_loss_fusion: true",
        ),
        {"dp": 8, "ep": 8, "zero": 1, "micro_batch": 4, "loss": "fused"}, {"seq": 4096, "global_batch": 256}, gpus=8,
    ),
    PublicFile(
        f"{PRIMUS}MI300X/qwen3_235B_A22B-BF16-pretrain.yaml", "primus", "235b.yaml",
        overrides(
            "micro_batch_size: 1", "global_batch_size: 32", "seq_length: ${PRIMUS_SEQ_LENGTH:2048}",
            "tensor_model_parallel_size: 1", "expert_model_parallel_size: 8", "sequence_parallel: 1",
            "overlap_grad_reduce: true", "overlap_param_gather: true", "use_torch_fsdp2: false",
            "use_distributed_optimizer: true",
        ),
        {"dp": 16, "ep": 8, "zero": 1, "sp": False, "overlap_param": True}, {"seq": 2048}, gpus=16,
    ),
    PublicFile(
        f"{PRIMUS}MI300X/mixtral_8x7B_v0.1-FP8-pretrain.yaml", "primus", "mixtral.yaml",
        overrides(
            "micro_batch_size: 2", "global_batch_size: 32", "seq_length: 4096", "tensor_model_parallel_size: 1",
            "expert_model_parallel_size: 8", "overlap_grad_reduce: true", "overlap_param_gather: true", "fp8: hybrid",
        ),
        {"dp": 8, "ep": 8, "zero": 1, "micro_batch": 2}, {"precision": "fp8-grad32", "global_batch": 32}, gpus=8,
    ),
    PublicFile(
        f"{PRIMUS}MI300X/llama3.1_405B-BF16-pretrain.yaml", "primus", "405b.yaml",
        overrides(
            "micro_batch_size: 1", "global_batch_size: 256", "seq_length: 8192", "tensor_model_parallel_size: 8",
            "pipeline_model_parallel_size: 8", "use_distributed_optimizer: true", "overlap_param_gather: true",
            "overlap_grad_reduce: true",
        ),
        {"dp": 2, "tp": 8, "pp": 8, "vpp": 1, "zero": 1, "sp": True}, {"seq": 8192, "global_batch": 256}, gpus=128,
    ),
    PublicFile(
        f"{VERL}grpo_trainer/run_deepseek_v3_671b_megatron.sh", "verl", "v3.sh",
        lines(
            "NNODES=${NNODES:-12}", "NGPUS_PER_NODE=${NGPUS_PER_NODE:-8}", "actor_tp=${ACTOR_TP:-8}",
            "actor_pp=${ACTOR_PP:-12}", "actor_ep=${ACTOR_EP:-8}", "last_layer=${LAST_LAYER:-6}", "ACTOR=(",
            "    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=${FRACTION:-1.0}",
            "    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True",
            "    actor_rollout_ref.actor.ppo_mini_batch_size=${PPO_MINI_BATCH_SIZE:-32}",
            f"    {ACTOR}tensor_model_parallel_size=${{actor_tp}}",
            f"    {ACTOR}pipeline_model_parallel_size=${{actor_pp}}",
            f"    {ACTOR}expert_model_parallel_size=${{actor_ep}}", f"    {ACTOR}expert_tensor_parallel_size=1",
            f"    +{ACTOR}override_transformer_config.moe_enable_deepep=True",
            f"    +{ACTOR}override_transformer_config.moe_token_dispatcher_type=flex",
            f"    +{ACTOR}override_transformer_config.recompute_method=uniform",
            f"    +{ACTOR}override_transformer_config.recompute_granularity=full",
            f"    +{ACTOR}override_transformer_config.recompute_num_layers=1",
            f"    +{ACTOR}override_transformer_config.num_layers_in_last_pipeline_stage=${{last_layer}}", ")",
            "LAUNCH=(python3)", '"${LAUNCH[@]}" -m verl.trainer.main_ppo \\', '    "${ACTOR[@]}" \\',
            "    trainer.n_gpus_per_node=${NGPUS_PER_NODE} trainer.nnodes=${NNODES} \\", '    "$@"',
        ),
        {"dp": 1, "tp": 8, "pp": 12, "ep": 8, "etp": 1, "recompute": "full", "offload": "optimizer"},
        {"gpus": 96, "layers": (5,) * 11 + (6,), "software": {"dispatcher": "flex"}, "global_batch": 32}, layers=61,
    ),
    PublicFile(
        f"{VERL}sft/gsm8k/run_nemotron_nano_v3_megatron.sh", "verl", "nano.sh",
        lines(
            "TP_SIZE=${TP_SIZE:-8}", "VPP_SIZE=${VPP_SIZE:-null}", "EP_SIZE=${EP_SIZE:-8}",
            'DTYPE=${DTYPE:-"bfloat16"}', 'ENGINE="\\', "    engine=megatron \\",
            "    +optim.override_optimizer_config.optimizer_offload_fraction=1 \\",
            "    +optim.override_optimizer_config.optimizer_cpu_offload=True \\",
            "    engine.tensor_model_parallel_size=${TP_SIZE} \\", "    engine.pipeline_model_parallel_size=1 \\",
            "    engine.virtual_pipeline_model_parallel_size=${VPP_SIZE} \\", "    engine.dtype=${DTYPE} \\",
            "    engine.expert_model_parallel_size=${EP_SIZE} engine.expert_tensor_parallel_size=1 \\",
            '    +engine.override_transformer_config.recompute_granularity=full"',
            "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.sft_trainer \\",
            "    data.train_batch_size=96 \\", "    ${ENGINE}",
        ),
        {"dp": 1, "tp": 8, "pp": 1, "vpp": 1, "ep": 8, "etp": 1, "offload": "optimizer", "recompute": "full"},
        {"gpus": 8, "global_batch": 96, "precision": "bf16"},
    ),
    PublicFile(
        f"{VERL}sft/gsm8k/run_qwen_megatron_fsdp.sh", "verl", "mfsdp.sh",
        lines(
            "NPROC=${NPROC:-8}", "TP=${TP:-4}", "PP=${PP:-1}", "ARGS=(engine=megatron data.train_batch_size=8",
            "    engine.tensor_model_parallel_size=${TP} engine.pipeline_model_parallel_size=${PP}",
            "    engine.use_megatron_fsdp=True)",
            'torchrun --standalone --nnodes=1 --nproc_per_node=$NPROC -m verl.trainer.sft_trainer "${ARGS[@]}"',
        ),
        {"dp": 2, "tp": 4, "zero": 3}, {"gpus": 8, "global_batch": 8},
    ),
    PublicFile(
        "NVIDIA-NeMo/Megatron-Bridge@067f987df:examples/models/qwen/qwen3_next/conf/"
        "qwen3_next_80b_a3b_finetune_override_example.yaml", "bridge", "next.yaml",
        lines(
            "model:", "  seq_length: 2048", "  cross_entropy_loss_fusion: False", "train:", "  train_iters: 600",
            "  global_batch_size: 64", "  micro_batch_size: 1", "dist:", "  use_megatron_fsdp: false", "dataset:",
            "  seq_length: 2048", "ddp:", "  grad_reduce_in_fp32: true",
        ),
        {"dp": 8, "tp": 1, "micro_batch": 1, "loss": "plain", "overlap_grad": True},
        {"seq": 2048, "global_batch": 64}, gpus=8,
    ),
    PublicFile(
        "NVIDIA-NeMo/Megatron-Bridge@067f987df:examples/quantization/conf/"
        "quantized_llama3_8b_pretrain_override_example.yaml", "bridge", "quantized.yaml",
        lines(
            "model:", "  tensor_model_parallel_size: 1", "  context_parallel_size: 1",
            "  gradient_accumulation_fusion: False", "train:", "  train_iters: 20", "  global_batch_size: 8",
        ),
        {"dp": 8, "tp": 1, "cp": 1, "zero": 1}, {"global_batch": 8}, gpus=8,
    ),
)  # fmt: skip
