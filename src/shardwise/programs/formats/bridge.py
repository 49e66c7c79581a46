"""Megatron-Bridge: overrides of a recipe's ConfigContainer, as YAML."""

from dataclasses import replace
from typing import Any

from shardwise.programs.formats._contract import Found, Known, Lack, Launch, Written
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._megatron import MegatronProgram, gaps, megatron_format, parallel_settings, read
from shardwise.programs.formats._megatron_stages import COUNTED, FIRST, LAST
from shardwise.programs.formats._scripts import configured
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats.megatron import environment

PROGRAM = MegatronProgram()
MODEL = (
    "tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout", "context_parallel_size", "cp_comm_type",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend", "moe_enable_deepep", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "recompute_modules", "attention_backend", "cross_entropy_loss_fusion",
    "cross_entropy_fusion_impl", *FIRST, *LAST, *COUNTED,
)  # fmt: skip
SECTIONS: dict[str, tuple[str, ...]] = {
    "model": MODEL,
    "ddp": (
        "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_megatron_fsdp",
        "data_parallel_sharding_strategy", "num_distributed_optimizer_instances", "grad_reduce_in_fp32",
    ),
    "comm_overlap": ("tp_comm_overlap", "overlap_p2p_comm", "overlap_grad_reduce", "overlap_param_gather"),
    "optimizer": (
        "optimizer_cpu_offload", "optimizer_offload_fraction", "use_precision_aware_optimizer", "optimizer",
    ),
    "train": ("micro_batch_size", "global_batch_size"),
    "dataset": ("seq_length", "sequence_length"),
    "dist": ("use_tp_pp_dp_mapping",),
    "checkpoint": ("ckpt_format",),
}  # fmt: skip
"""where each of Megatron's settings lies"""
PRECISIONS = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8-grad32": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8-grad32": "bf16_with_mxfp8_mixed", "fp8-blockwise-grad32": "bf16_with_fp8_subchannel_scaling_mixed",
    "fp4-grad32": "bf16_with_nvfp4_mixed",
}  # fmt: skip
"""recipes reduce gradients in fp32 unless ddp.grad_reduce_in_fp32 says otherwise"""
OTHERS = {"bf16_with_fp8_delayed_scaling_mixed": "fp8-grad32"}


def _gaps(launch: Launch) -> list[Lack]:
    name = launch.case.job.precision.name
    if _recipe(name) is None:
        raise ValueError(
            f"precision: {name} is not a recipe of Megatron-Bridge; write bf16, fp16, fp8, fp8-blockwise, mxfp8 or fp4"
        )
    return gaps(PROGRAM, launch)


def _recipe(precision: str) -> tuple[str, bool] | None:
    """(name, whether gradients are reduced in fp32)"""
    base = precision.removesuffix("-grad16").removesuffix("-grad32")
    wide = precision.endswith("-grad32") or precision == "bf16"
    named = PRECISIONS.get(base) or PRECISIONS.get(f"{base}-grad32")
    return None if named is None else (named, wide)


def _write(launch: Launch) -> Written:
    policy, job = launch.policy, launch.case.job
    settings = parallel_settings(launch, PROGRAM)
    settings |= {
        "micro_batch_size": policy.micro_batch, "global_batch_size": job.global_batch, "seq_length": job.seq,
        "attention_backend": "flash" if policy.attention == "flash" else "unfused",
        "cross_entropy_loss_fusion": policy.loss == "fused",
    }  # fmt: skip
    settings.setdefault("virtual_pipeline_model_parallel_size", None)
    settings.setdefault("recompute_granularity", None)
    if settings.get("pipeline_model_parallel_layout"):
        del settings["virtual_pipeline_model_parallel_size"]
    recipe, wide = _recipe(job.precision.name) or ("bf16_mixed", True)
    settings["grad_reduce_in_fp32"] = wide
    data: dict[str, Any] = {
        section: {name: settings[name] for name in names if name in settings} for section, names in SECTIONS.items()
    }
    data = {section: values for section, values in data.items() if values} | {"mixed_precision": recipe}
    notes = ("overrides for a recipe of this model; RECIPE is the script that builds it and takes --config-file",)
    words = ["--config-file", "bridge.yaml"]
    return configured(launch, words[1], yaml_text(data, notes), '"${RECIPE:?}"', words, environment(launch), notes)


def _claims(settings: FileSettings) -> bool:
    named = ("model.tensor_model_parallel_size", "model.pipeline_model_parallel_size")
    lightning = any(name.startswith("trainer.") for name in settings.names())  # NeMo before Megatron-Bridge
    trains = settings.has("train.train_iters") and settings.has("train.global_batch_size")
    return not lightning and (trains or any(map(settings.has, (*named, "comm_overlap.tp_comm_overlap"))))


def _read(settings: FileSettings, known: Known) -> Found:
    # what the communication overlap says last holds over ddp
    order = ("comm_overlap", *[section for section in SECTIONS if section != "comm_overlap"])
    plain: dict[str, Any] = {}
    for section in order:
        for name in SECTIONS[section]:
            if settings.has(f"{section}.{name}"):
                text = settings.text(f"{section}.{name}")
                words = settings.words(f"{section}.{name}") if name in ("recompute_modules", "cp_comm_type") else text
                plain.setdefault("seq_length" if name == "sequence_length" else name, words)
    wide = plain.pop("grad_reduce_in_fp32", "true")
    plain.pop("optimizer", None)
    # absent overlaps are decided by Bridge: on where there is something to overlap
    own = {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}
    found = read(FileSettings(plain, "bridge"), known, own)
    recipe = settings.text("mixed_precision")
    precision = {**{v: k for k, v in PRECISIONS.items()}, **OTHERS}.get(recipe, "")
    if str(wide).lower() == "false":
        precision = "bf16-grad16" if precision == "bf16" else precision.replace("-grad32", "-grad16")
    return replace(found, precision=precision, optimizer="")


FORMAT = megatron_format(
    name="bridge", smoke="train.train_iters=3",
    title="Megatron-Bridge",
    stack="megatron-bridge",
    source="NVIDIA-NeMo/Megatron-Bridge 067f987df: src/megatron/bridge/training (config, comm_overlap, …)",
    gaps=_gaps, write=_write, claims=_claims, read=_read,
)  # fmt: skip
