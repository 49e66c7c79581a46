"""verl: hydra overrides of its supervised fine-tuning trainer on Megatron."""

import math
from dataclasses import replace
from typing import Any

from shardwise.programs.formats._contract import Found, Known, Lack, Launch, Written
from shardwise.programs.formats._megatron import MegatronProgram, gaps, megatron_format, parallel_settings, read
from shardwise.programs.formats._megatron_stages import COUNTED, FIRST, LAST
from shardwise.programs.formats._rollout import of_verl
from shardwise.programs.formats._scripts import host_gpus, nodes_of, script
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._verl_fsdp import BY_TOKENS, is_sharded, length_of, read_sharded, tuned_by, updates_of
from shardwise.programs.formats._verl_fsdp import MODEL as RL_MODEL
from shardwise.programs.formats.megatron import environment

PROGRAM = MegatronProgram(shards_parameters=False, instances=False, mapping=False)
ENGINE = (
    "tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "use_distributed_optimizer",
)  # fmt: skip
LISTED = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "attention_backend",
)
MODEL = ("tp_comm_overlap", "overlap_p2p_comm", "pipeline_model_parallel_layout", "cross_entropy_loss_fusion",
         "cross_entropy_fusion_impl", "cp_comm_type", "moe_token_dispatcher_type", "moe_enable_deepep",
         "moe_flex_dispatcher_backend", *FIRST, *LAST, *COUNTED)  # fmt: skip
DDP = ("overlap_grad_reduce", "overlap_param_gather")
OPTIMIZER = ("optimizer_cpu_offload", "optimizer_offload_fraction", "use_precision_aware_optimizer")
OF_ALL_RANKS = "actor_rollout_ref.actor.ppo_micro_batch_size"
"""micro-batch of all replicas together, of versions before the one for each GPU"""
FIRST_TENSOR = 4
"""default of those versions (verl 0.2: trainer/config/ppo_megatron_trainer.yaml)"""
SUPERVISED, ACTOR = "engine.", "actor_rollout_ref.actor.megatron."
TRANSFORMER, WRAPPER, STEP = "override_transformer_config", "override_ddp_config", "override_optimizer_config"


def _gaps(launch: Launch) -> list[Lack]:
    job = launch.case.job
    if job.precision.compute not in ("bf16", "fp16"):
        raise ValueError(f"precision: {job.precision.name} is not stated in verl's engine; write bf16 or fp16")
    return gaps(PROGRAM, launch)


def _words(launch: Launch) -> list[str]:
    policy, job = launch.policy, launch.case.job
    settings = parallel_settings(launch, PROGRAM)
    settings["attention_backend"] = "flash" if policy.attention == "flash" else "unfused"
    if policy.loss == "fused":
        settings |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}
    words = ["engine=megatron", "optim=megatron"]
    # '+' adds what the configuration does not list
    for prefix, names in (
        ("engine.", ENGINE), (f"engine.{TRANSFORMER}.", LISTED), (f"+engine.{TRANSFORMER}.", MODEL),
        (f"+engine.{WRAPPER}.", DDP), (f"+optim.{STEP}.", OPTIMIZER),
    ):  # fmt: skip
        words += [f"{prefix}{name}={_word(settings[name])}" for name in names if name in settings]
    return [
        *words, f"engine.dtype={'bfloat16' if job.precision.compute == 'bf16' else 'float16'}",
        f"data.train_batch_size={job.global_batch}", f"data.micro_batch_size_per_gpu={policy.micro_batch}",
        "data.use_dynamic_bsz=False", f"data.max_length={job.seq}",
        f"trainer.nnodes={nodes_of(launch.case.cluster)}", f"trainer.n_gpus_per_node={host_gpus(launch.case.cluster)}",
    ]  # fmt: skip


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(value) + "]"
    return f"'{value}'" if isinstance(value, str) and "|" in value else str(value)


def _write(launch: Launch) -> Written:
    notes = ("MODEL_PATH and TRAIN_FILES are yours",)
    found = environment(launch)
    words = [*_words(launch), '"model.path=${MODEL_PATH:?}"', '"data.train_files=${TRAIN_FILES:?}"']
    text = script(launch, "-m verl.trainer.sft_trainer", {"ARGS": words}, found, notes)
    return Written({"train.sh": text}, found, notes)


def _claims(settings: FileSettings) -> bool:
    stated = [name.rpartition(".")[0] for name in settings.names() if name.endswith(".tensor_model_parallel_size")]
    actor = any(name.startswith("actor_rollout_ref.actor.") for name in settings.names())
    return actor or settings.text("engine") == "megatron" or any(f"{where}." in (SUPERVISED, ACTOR) for where in stated)


def _read(settings: FileSettings, known: Known) -> Found:
    supervised = "sft" in settings.program or not any(n.startswith("actor_rollout_ref.") for n in settings.names())
    engine = settings.text("engine") or settings.text("model_engine")
    if engine not in ("", "megatron", "fsdp", "fsdp2", "dp"):
        raise settings.refuse("engine", "megatron or fsdp")
    settings.text("trainer.logger")
    if is_sharded(settings) and not settings.has(f"{SUPERVISED}tensor_model_parallel_size"):
        return read_sharded(settings, known, supervised=supervised)
    fine_tuned = supervised
    engine = SUPERVISED if fine_tuned else ACTOR
    optimizer = "optim." if fine_tuned else "actor_rollout_ref.actor.optim."
    plain: dict[str, Any] = {}
    for names, prefix in (((*ENGINE, "use_megatron_fsdp"), engine), ((*LISTED, *MODEL), f"{engine}{TRANSFORMER}."),
                          (DDP, f"{engine}{WRAPPER}."), (OPTIMIZER, f"{optimizer}{STEP}.")):  # fmt: skip
        for name in names:
            if settings.has(prefix + name):
                listed = name == "recompute_modules"
                plain[name] = settings.words(prefix + name) if listed else settings.text(prefix + name).strip("'")
    micro, batch = "data.micro_batch_size_per_gpu", "data.train_batch_size"
    if not fine_tuned:
        actor = "actor_rollout_ref.actor."
        micro = f"{actor}ppo_micro_batch_size_per_gpu"
    notes, beyond = list[str](), list[str]()
    first = settings.has(OF_ALL_RANKS) and not settings.has(micro)
    if first and "tensor_model_parallel_size" not in plain:
        plain["tensor_model_parallel_size"] = FIRST_TENSOR
        notes.append(f"tensor_model_parallel_size is not stated: {FIRST_TENSOR}, of the versions with {OF_ALL_RANKS}")
    sequences = settings.whole_or_none(batch) if fine_tuned else updates_of(settings, notes)
    plain |= {"micro_batch_size": settings.whole(micro), "global_batch_size": sequences}
    nodes, each = settings.whole_or_none("trainer.nnodes"), settings.whole_or_none("trainer.n_gpus_per_node")
    gpus = known.gpus or (nodes * each if nodes and each else None)
    if not fine_tuned:
        gpus = (nodes or 1) * (each or 8)
        beyond.append("rollouts and the passes of other models: the update of the actor alone is priced")
    if first:
        split = [int(plain.get(f"{axis}_parallel_size", 1)) for axis in ("tensor_model", "pipeline_model", "context")]
        plain["micro_batch_size"] = max(settings.whole(OF_ALL_RANKS) * math.prod(split) // (gpus or 1), 1)
    own = {"sequence_parallel": True, "use_distributed_optimizer": True}
    found = read(FileSettings(plain, "verl"), replace(known, gpus=gpus), own)
    notes = [*found.notes, *notes]
    if settings.flag("data.use_dynamic_bsz", fine_tuned) or settings.flag("actor_rollout_ref.actor.use_dynamic_bsz"):
        notes.append(BY_TOKENS.format("the stated micro-batch is taken"))
    half = settings.text(f"{engine}dtype", "bfloat16") == "float16"
    return replace(
        found,
        precision="fp16" if half else "bf16",
        notes=tuple(notes),
        optimizer="adamw",
        seq=settings.whole_or_none("data.max_length") if fine_tuned else length_of(settings),
        not_modelled=(*found.not_modelled, *beyond),
        called=settings.text("model.path" if fine_tuned else f"{RL_MODEL}path"),
        tune=tuned_by(settings, "model." if fine_tuned else RL_MODEL, beyond),
        rollout=None if fine_tuned else of_verl(settings),
    )


FORMAT = megatron_format(
    name="verl", smoke="trainer.total_training_steps=2",
    title="verl",
    stack="megatron-core",
    source="verl-project/verl 1dda039b9: verl/trainer/config: sft_trainer_engine.yaml, engine/megatron.yaml",
    starts=r"verl\.trainer\.\w+|recipe\.\w+\.(?:src\.)?main_\w+|(?:.*/)?verl/trainer/\w+\.py", gaps=_gaps, write=_write,
    claims=_claims, read=_read,
)  # fmt: skip
