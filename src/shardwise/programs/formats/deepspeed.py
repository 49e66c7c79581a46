"""DeepSpeed: its JSON; model, sequence, recompute and stages are in the code that is started with it."""

from typing import Any

from shardwise.plugins.optimizers import read_from, spelling_in
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, Written, own_overlaps
from shardwise.programs.formats._files import json_text
from shardwise.programs.formats._scripts import configured, network_environment
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._smoke import OWN_LOOP
from shardwise.spec.policy import Policy

STACK = "deepspeed"
GRADIENTS = {"bf16": "fp32", "bf16-grad16": "bf16", "fp16": "fp16", "fp16-grad32": "fp32", "fp32": "fp32"}
"""dtype that gradients are added up in, of the precisions that can be stated"""
IN_CODE = "it is set in the training code, not in DeepSpeed's file"


def _own(_version: str) -> dict[str, Any]:
    return own_overlaps(STACK, "overlap_param")


def _gaps(launch: Launch) -> list[Lack]:
    policy, job = launch.policy, launch.case.job
    found = [
        Lack(name, getattr(policy, name), IN_CODE)
        for name, plain in (("recompute", "none"), ("attention", "flash"), ("loss", launch.case.stack.loss.loss_kind))
        if getattr(policy, name) != plain
    ]
    if policy.offload == "optimizer" and policy.zero == 0:
        found.append(Lack("offload", policy.offload, "offload needs ZeRO"))
    if policy.offload == "optimizer" and policy.offload_share < 1 and policy.zero < 3:
        found.append(Lack("offload_share", policy.offload_share, "a part is offloaded with zero 3 only"))
    if job.precision.name not in GRADIENTS:
        raise ValueError(
            f"precision: {job.precision.name} has no key in DeepSpeed's file; write one of {', '.join(GRADIENTS)}"
        )
    spelling_in(STACK, job.optimizer.name)
    return found


def settings_of(launch: Launch) -> dict[str, Any]:
    policy, job = launch.policy, launch.case.job
    zero: dict[str, Any] = {"stage": policy.zero, "overlap_comm": policy.overlap_grad}
    if policy.offload == "optimizer":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if policy.zero == 3:
            zero["offload_optimizer"]["ratio"] = policy.offload_share
    return {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": policy.micro_batch,
        "gradient_accumulation_steps": job.global_batch // (policy.dp * policy.micro_batch),
        "bf16": {"enabled": job.precision.compute == "bf16"},
        "fp16": {"enabled": job.precision.compute == "fp16"},
        "data_types": {"grad_accum_dtype": GRADIENTS[job.precision.name]},
        "zero_optimization": zero,
        "optimizer": {"type": spelling_in(STACK, job.optimizer.name), "params": {"lr": 3e-4}},
        "gradient_clipping": 1.0,
    }  # fmt: skip


def _write(launch: Launch) -> Written:
    notes = ("SCRIPT is your training code; learning rate and clipping stand in for yours",)
    environment = network_environment(launch.case.cluster, launch.cards)
    words = ["--deepspeed", "--deepspeed_config", "deepspeed.json"]
    text = json_text(settings_of(launch))
    return configured(launch, words[-1], text, '"${SCRIPT:?}"', words, environment, notes, smoke=OWN_LOOP)


def _claims(settings: FileSettings) -> bool:
    stated = any(
        name.startswith("zero_optimization.") or name == "train_micro_batch_size_per_gpu" for name in settings.names()
    )
    others = (
        "model_name_or_path",
        "base_model",
        "pipe_parallel_size",
        "pipe-parallel-size",
        "num_layers",
        "num-layers",
        "per_device_train_batch_size",
        "tensor_model_parallel_size",
    )
    return stated and not settings.first(*others)


def _number(settings: FileSettings, name: str, default: int) -> int:
    """'auto' is filled in by the program around it."""
    return default if settings.text(name) == "auto" else settings.whole(name, default)


def _read(settings: FileSettings, known: Known) -> Found:
    notes = [f"{name}: auto, which the program around DeepSpeed fills in" for name, value in settings.values.items()
             if value == "auto" and "." not in name]  # fmt: skip
    beyond = list[str]()
    steps = _number(settings, "gradient_accumulation_steps", 1)
    batch = _number(settings, "train_batch_size", 0) if settings.has("train_batch_size") else 0
    tp = max(_number(settings, "tensor_parallel.autotp_size", 1), 1)
    cp = _number(settings, "sequence_parallel_size", 1)
    shares = steps * max((known.gpus or 0) // (tp * cp), 1)
    micro = _number(settings, "train_micro_batch_size_per_gpu", max(batch // shares, 1) if known.gpus else 1)
    dp = batch // (micro * steps) if batch and settings.has("gradient_accumulation_steps") else 0
    if batch and dp * micro * steps not in (0, batch):
        raise settings.refuse("train_batch_size", f"a multiple of {micro * steps} (micro-batch x accumulation)")
    if not dp:
        dp = max((known.gpus or 0) // (tp * cp), 1)
        if known.gpus is None:
            notes.append("the file does not say how many GPUs: one replica is assumed")
    if settings.text("zero_optimization.offload_param.device", "none") != "none":
        settings.text("zero_optimization.offload_param.pin_memory")
        beyond.append("offload_param: parameters that stay in the host's memory are not modelled")
    if settings.program:
        notes.append(f"{settings.program} is not read: model, sequence and recompute that it sets are not known here")
    zero = settings.whole("zero_optimization.stage", 0, least=0)
    old = "cpu" if settings.flag("zero_optimization.cpu_offload") else "none"
    device = settings.text("zero_optimization.offload_optimizer.device", old)
    if device == "nvme":
        notes.append("offload to NVMe is taken as to memory")
    overlap = settings.flag("zero_optimization.overlap_comm", zero == 3)
    policy = Policy(
        dp=dp, tp=tp, cp=cp, zero=zero, micro_batch=micro, overlap_grad=overlap, sp=False,
        offload="none" if device == "none" else "optimizer",
        offload_share=round(settings.number("zero_optimization.offload_optimizer.ratio", 1.0), 3), **_own(""),
    )  # fmt: skip
    settings.text("zero_optimization.offload_optimizer.pin_memory")
    return Found(
        policy=policy, gpus=policy.gpus if known.gpus or dp > 1 else None, global_batch=batch or None,
        precision=_precision(settings), not_modelled=tuple(beyond),
        optimizer=read_from(STACK, settings.text("optimizer.type")),
        notes=tuple(notes), software={"context_parallel": "ulysses"} if cp > 1 else {},
    )  # fmt: skip


def _precision(settings: FileSettings) -> str:
    accumulated = settings.text("data_types.grad_accum_dtype")
    for name, short in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        if settings.text(f"{name}.enabled") not in ("auto", "") and settings.flag(f"{name}.enabled"):
            if short == "fp16":
                return "fp16-grad32" if accumulated == "fp32" else "fp16"
            return "bf16-grad16" if accumulated == "bf16" else "bf16"
    return ""


FORMAT = Format(
    name="deepspeed", smoke="SCRIPT=smoke.py bash train.sh (without a GPU: DS_ACCELERATOR=cpu before it)",
    title="DeepSpeed",
    stack=STACK,
    source="deepspeedai/DeepSpeed edaa72212 (0.19.6): deepspeed/runtime/config.py, deepspeed/runtime/zero/config.py",
    only={
        "tp": (1,), "pp": (1,), "cp": (1,), "ep": (1,), "etp": (0,), "shard_group": (0,),
        "offload": ("none", "optimizer"), "sync": ("",),
    },
    own=_own, gaps=_gaps, write=_write, claims=_claims, read=_read, own_script=True,
)  # fmt: skip
