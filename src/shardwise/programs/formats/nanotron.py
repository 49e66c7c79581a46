"""nanotron: its YAML."""

from typing import Any

from shardwise.plugins.optimizers import read_from, spelling_in
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, Written, own_overlaps
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._megatron_model import not_stated
from shardwise.programs.formats._scripts import configured, network_environment
from shardwise.programs.formats._settings import FileSettings
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy

STACK = "nanotron"
ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}


def _own(_version: str) -> dict[str, Any]:
    return own_overlaps(STACK, "overlap_grad", "overlap_param", "overlap_pp")


def _gaps(launch: Launch) -> list[Lack]:
    policy, found, job = launch.policy, list[Lack](), launch.case.job
    if policy.loss != launch.case.stack.loss.loss_kind:
        found.append(Lack("loss", policy.loss, "nanotron has one"))
    if job.precision.name not in ("bf16", "bf16-grad16", "fp32"):
        raise ValueError(f"precision: {job.precision.name} is none of nanotron's; write bf16, bf16-grad16 or fp32")
    spelling_in("nanotron", job.optimizer.name)
    if not_stated(launch.case.model) or any(kind.experts for kind in launch.case.model.kinds):
        raise ValueError(f"model: {launch.case.model.name} is not a dense decoder; write another --to")
    return found


def _shape(model: Model, seq: int) -> dict[str, Any]:
    attention = next(kind.attention for kind in model.kinds if kind.attention)
    dense = next(kind.feed_forward for kind in model.kinds if kind.feed_forward)
    return {
        "is_llama_config": True, "hidden_act": "silu", "hidden_size": model.hidden, "intermediate_size": dense.width,
        "num_hidden_layers": model.layers, "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads, "vocab_size": model.vocab, "tie_word_embeddings": model.tied,
        "max_position_embeddings": max(seq, model.context), "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_theta, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02,
        "pad_token_id": None, "pretraining_tp": 1, "rope_scaling": None, "use_cache": True,
    }  # fmt: skip


def _write(launch: Launch) -> Written:
    policy, job = launch.policy, launch.case.job
    steps = job.global_batch // (policy.dp * policy.micro_batch)
    factory: dict[str, Any] = {"name": spelling_in("nanotron", job.optimizer.name)}
    if job.optimizer.rule.fuses:
        factory |= {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True}
    data = {
        "general": {"project": "shardwise", "run": launch.case.model.name, "seed": 42, "ignore_sanity_checks": True},
        "model": {
            "ddp_bucket_cap_mb": 25, "dtype": "float32" if job.precision.compute == "fp32" else "bfloat16",
            "init_method": {"std": 0.02}, "make_vocab_size_divisible_by": 1,
            "model_config": _shape(launch.case.model, job.seq),
        },
        "optimizer": {
            "accumulate_grad_in_fp32": job.precision.grad_bytes == 4, "clip_grad": 1.0, "weight_decay": 0.1,
            "zero_stage": policy.zero, "optimizer_factory": factory,
            "learning_rate_scheduler": {
                "learning_rate": 3e-4, "lr_decay_starting_step": None, "lr_decay_steps": 40, "lr_decay_style": "cosine",
                "lr_warmup_steps": 10, "lr_warmup_style": "linear", "min_decay_lr": 1e-5,
            },
        },
        "parallelism": {
            "dp": policy.dp, "pp": policy.pp, "tp": policy.tp, "expert_parallel_size": 1,
            "context_parallel_size": policy.cp, "pp_engine": ENGINES[policy.schedule],
            "tp_mode": "REDUCE_SCATTER" if policy.sp else "ALL_REDUCE",
            "tp_linear_async_communication": policy.overlap_tp, "recompute_layer": policy.recompute == "full",
        },
        "tokenizer": {
            "tokenizer_name_or_path": "YOUR_TOKENIZER", "tokenizer_max_length": None, "tokenizer_revision": None,
        },
        "tokens": {
            "sequence_length": job.seq, "micro_batch_size": policy.micro_batch,
            "batch_accumulation_per_replica": steps, "train_steps": 50, "val_check_interval": -1,
            "limit_test_batches": 0, "limit_val_batches": 0,
        },
        "data_stages": [{"name": "stage", "start_training_step": 1,
                         "data": {"dataset": None, "num_loading_workers": 1, "seed": 42}}],
        "checkpoints": {"checkpoint_interval": 1000, "checkpoints_path": "checkpoints",
                        "checkpoints_path_is_shared_file_system": False, "resume_checkpoint_path": None,
                        "save_initial_state": False},
        "logging": {"iteration_step_info_interval": 1, "log_level": "info", "log_level_replica": "info"},
    }  # fmt: skip
    notes = (
        "data, tokenizer and learning rate stand in for yours",
        "compare rope_theta and rms_norm_eps with config.json of your model",
    )
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} | network_environment(launch.case.cluster, launch.cards)
    program, words = '"${NANOTRON_PATH:-.}/run_train.py"', ["--config-file", "nanotron.yaml"]
    return configured(launch, words[1], yaml_text(data, notes), program, words, environment, notes)


def _claims(settings: FileSettings) -> bool:
    return settings.has("parallelism.dp") and settings.has("parallelism.tp")


def _read(settings: FileSettings, _known: Known) -> Found:
    tp = settings.whole("parallelism.tp")
    recompute = settings.flag("parallelism.recompute_layer")
    policy = Policy(
        dp=settings.whole("parallelism.dp"), tp=tp, pp=settings.whole("parallelism.pp"),
        cp=settings.whole("parallelism.context_parallel_size"), ep=settings.whole("parallelism.expert_parallel_size"),
        schedule=settings.choice("parallelism.pp_engine", {v: k for k, v in ENGINES.items()}, "gpipe"),
        sp=tp > 1 and settings.text("parallelism.tp_mode", "ALL_REDUCE").upper() == "REDUCE_SCATTER",
        overlap_tp=settings.flag("parallelism.tp_linear_async_communication"),
        recompute="full" if recompute else "none", zero=settings.whole("optimizer.zero_stage", 0, least=0),
        micro_batch=settings.whole("tokens.micro_batch_size"), **_own(""),
    )  # fmt: skip
    steps = settings.whole("tokens.batch_accumulation_per_replica")
    wide = settings.flag("optimizer.accumulate_grad_in_fp32", True)
    dtype = settings.text("model.dtype", "bfloat16")
    return Found(
        policy=policy, gpus=policy.gpus, seq=settings.whole_or_none("tokens.sequence_length"),
        global_batch=steps * policy.micro_batch * policy.dp,
        precision="fp32" if dtype == "float32" else "bf16" if wide else "bf16-grad16",
        optimizer=read_from("nanotron", settings.text("optimizer.optimizer_factory.name")),
    )  # fmt: skip


FORMAT = Format(
    name="nanotron",
    title="nanotron",
    stack=STACK,
    source="huggingface/nanotron 2411b022: src/nanotron/config/config.py, src/nanotron/config/parallelism_config.py",
    only={
        "vpp": (1,), "ep": (1,), "etp": (0,), "zero": (0, 1), "shard_group": (0,), "schedule": ("1f1b", "gpipe"),
        "recompute": ("none", "full"), "recompute_modules": ((),), "order": ("tp-cp-dp-pp",), "attention": ("flash",),
        "offload": ("none",), "sync": ("",),
    },
    own=_own, gaps=_gaps, write=_write, claims=_claims, read=_read,
)  # fmt: skip
