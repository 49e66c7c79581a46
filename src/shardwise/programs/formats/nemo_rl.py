"""NeMo-RL: YAML of its recipes, over the defaults of the file that they begin with."""

import re
from typing import Any

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._rollout import of_nemo_rl
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import read as shared
from shardwise.programs.formats._tuning import adapters_text
from shardwise.spec.policy import Policy

MEGATRON, DTENSOR = "policy.megatron_cfg.", "policy.dtensor_cfg."
DDP = f"{MEGATRON}distributed_data_parallel_config."
_NAME = re.compile(r"\$\{([\w.]+)\}")
MOST_STEPS = 8
"""of a value that names another"""


def _claims(settings: FileSettings) -> bool:
    names = settings.names()
    sized = settings.has("cluster.num_nodes") or settings.has("cluster.gpus_per_node") or settings.has("defaults")
    ours = ("grpo.", "dpo.", "distillation.", "ppo.", MEGATRON, DTENSOR)
    return sized and settings.has("policy.model_name") and any(name.startswith(ours) for name in names)


def _resolved(settings: FileSettings) -> FileSettings:
    """With `${name}` replaced by what has this name."""
    values: dict[str, Any] = dict(settings.values)
    for name, value in values.items():
        for _ in range(MOST_STEPS):
            match = _NAME.fullmatch(value) if isinstance(value, str) else None
            if match is None or match[1] not in values:
                break
            value = values[match[1]]
        values[name] = value
    return FileSettings(values, settings.where, settings.program, settings.track)


def _read(stated: FileSettings, known: Known) -> Found:
    settings, notes, beyond = _resolved(stated), list[str](), list[str]()
    gpus = settings.whole("cluster.gpus_per_node", 8) * settings.whole("cluster.num_nodes")
    if known.gpus and known.gpus != gpus:
        notes.append(f"the file states {gpus} GPUs, the cluster named has {known.gpus}")
    rollout = of_nemo_rl(settings, gpus)
    trains = gpus - (rollout.rollout_gpus or 0 if rollout is not None else 0)
    if trains < 1:
        raise settings.refuse("policy.generation.colocated.resources.num_nodes", f"fewer than the {gpus} GPUs")
    if base := settings.text("defaults"):
        notes.append(f"what it leaves out is taken from NeMo-RL's own defaults, beneath {base.rpartition('/')[2]}")
    megatron = settings.flag(f"{MEGATRON}enabled")
    policy = _megatron(settings, trains, beyond) if megatron else _dtensor(settings, trains, beyond)
    at = f"{MEGATRON}peft." if megatron else f"{DTENSOR}lora_cfg."
    tune = ""
    if settings.flag(f"{at}enabled"):
        tune = adapters_text(settings.whole(f"{at}dim", 8), settings.words(f"{at}target_modules") or ("all-linear",))
    if settings.flag("policy.dynamic_batching.enabled"):
        notes.append("micro-batches are made by tokens (dynamic_batching): the stated micro-batch is taken")
    for prefix in ("checkpointing.", "logger.", "data.", "data_plane.", "policy.generation.mcore_generation_config.",
                   "reward_penalties.", DTENSOR if megatron else MEGATRON, *([] if tune else [at])):  # fmt: skip
        settings.below(prefix)
    if settings.flag("policy.draft.enabled"):
        beyond.append("draft: a model that drafts answers is trained beside the policy")
    if not settings.flag("policy.sequence_packing.enabled", True):
        beyond.append("sequence_packing is off: sequences are padded to the longest one; packed ones are priced")
    half = settings.text("policy.precision", "bfloat16")
    return Found(
        policy=policy, gpus=trains, seq=settings.whole("policy.max_total_sequence_length", 512),
        global_batch=settings.whole("policy.train_global_batch_size", 512),
        precision="fp16" if half == "float16" else "bf16", optimizer="adamw",
        called=settings.text("policy.model_name"), tune=tune, stack="megatron-core" if megatron else "torch-fsdp2",
        notes=tuple(notes), not_modelled=tuple(beyond), rollout=rollout,
    )  # fmt: skip


def _megatron(settings: FileSettings, gpus: int, beyond: list[str]) -> Policy:
    def degree(name: str) -> int:
        return settings.whole(f"{MEGATRON}{name}_parallel_size")

    tp, pp, cp = degree("tensor_model"), degree("pipeline_model"), degree("context")
    if settings.flag(f"{MEGATRON}fp8_cfg.enabled"):
        beyond.append("fp8_cfg: products of the trainer in 8 bits; 16 are priced")
    for name in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"):
        if layers := settings.whole_or_none(f"{MEGATRON}{name}"):
            beyond += [f"{name} {layers}: an even split is priced"]
    recomputed = settings.text(f"{MEGATRON}recompute_granularity", "full")
    return Policy(
        dp=_whole_replicas(settings, gpus, tp * pp * cp), tp=tp, pp=pp, cp=cp, ep=degree("expert_model"),
        etp=settings.whole(f"{MEGATRON}expert_tensor_parallel_size", 1, least=0) if degree("expert_model") > 1 else 0,
        zero=1, micro_batch=settings.whole("policy.train_micro_batch_size", 4), attention="flash",
        overlap_grad=settings.flag(f"{DDP}overlap_grad_reduce"),
        overlap_param=settings.flag(f"{DDP}overlap_param_gather"),
        offload="optimizer" if settings.flag(f"{MEGATRON}optimizer.optimizer_cpu_offload") else "none",
        sp=settings.flag(f"{MEGATRON}sequence_parallel") and tp > 1,
        recompute=recomputed if settings.flag(f"{MEGATRON}activation_checkpointing") else "none",
    )  # fmt: skip


def _dtensor(settings: FileSettings, gpus: int, beyond: list[str]) -> Policy:
    tp, cp = (settings.whole(f"{DTENSOR}{name}_parallel_size") for name in ("tensor", "context"))
    dp = _whole_replicas(settings, gpus, tp * cp)
    if settings.flag(f"{DTENSOR}cpu_offload"):
        beyond.append("cpu_offload: parameters wait in the host's memory between their uses")
    zero, group = shared(dp, dp, cp, True, gpus)
    return Policy(
        dp=dp, tp=tp, cp=cp, ep=settings.whole(f"{DTENSOR}expert_parallel_size"), zero=zero, shard_group=group,
        micro_batch=settings.whole("policy.train_micro_batch_size", 4), attention="flash",
        sp=settings.flag(f"{DTENSOR}sequence_parallel"),
        recompute="full" if settings.flag(f"{DTENSOR}activation_checkpointing") else "none",
    )  # fmt: skip


def _whole_replicas(settings: FileSettings, gpus: int, each: int) -> int:
    if gpus % each:
        raise settings.refuse("cluster.num_nodes", f"nodes whose GPUs that train are a multiple of {each}")
    return gpus // each


FORMAT = Format(
    name="nemo_rl", title="NeMo-RL", stack="megatron-core", claims=_claims, read=_read, adapters=True,
    source="NVIDIA-NeMo/RL main: examples/configs/grpo_math_1B.yaml, dpo.yaml, distillation_math.yaml",
    starts=r"(?:.*/)?run_(?:grpo|dpo|distillation|ppo|vlm_grpo)\w*\.py",
)  # fmt: skip
