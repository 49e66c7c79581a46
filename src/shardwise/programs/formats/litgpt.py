"""LitGPT: YAML of `litgpt finetune_lora`, `finetune_full` and `pretrain`."""

import re

from shardwise.programs.formats._adapters import tune_text
from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import FAMILY
from shardwise.spec.policy import Policy

TARGETS = {"query": ("q_proj",), "key": ("k_proj",), "value": ("v_proj",), "projection": ("o_proj",),
           "mlp": ("gate_proj", "up_proj", "down_proj")}  # fmt: skip
USUAL = ("query", "value")
HALVES = {
    "bf16-true": "bf16",
    "bf16-mixed": "bf16",
    "16-true": "fp16",
    "16-mixed": "fp16",
    "32-true": "fp32",
    "32": "fp32",
}


def _claims(settings: FileSettings) -> bool:
    return settings.has("train.global_batch_size") and bool(
        settings.first("checkpoint_dir", "model_name", "lora_r", "devices")
    )


def _read(settings: FileSettings, known: Known) -> Found:
    notes = list[str]()
    devices, nodes = settings.text("devices", "1"), settings.whole("num_nodes")
    gpus = known.gpus or (int(devices) * nodes if re.fullmatch(r"\d{1,4}", devices) else None)
    if gpus is None:
        notes.append(f"devices {devices}: all that the machine has; one is assumed")
    ranks = gpus or 1
    pretrains = "pretrain" in settings.program or (settings.has("model_name") and not settings.has("checkpoint_dir"))
    adapts = settings.has("lora_r") or "lora" in settings.program
    if any(kind in settings.program for kind in ("adapter", "pretrain_")):
        raise ValueError(
            f"{settings.where}: {settings.program} is not read; write finetune_lora, finetune_full or pretrain"
        )
    batch, micro = settings.whole("train.global_batch_size", 64), settings.whole("train.micro_batch_size", 4)
    shared = ranks > 1
    policy = Policy(
        dp=ranks, zero=3 if shared else 0, micro_batch=micro, sp=False,
        shard_group=min(int(devices) if devices.isdigit() else 8, ranks) if pretrains and nodes > 1 else 0,
        # FSDP's policy checkpoints each block in both ways of fine-tuning, and in neither on one GPU
        recompute="full" if shared and not pretrains else "none",
    )  # fmt: skip
    precision = settings.text("precision", "bf16-true")
    seq = settings.whole("train.max_seq_length", 0)
    if not seq:
        notes.append("train.max_seq_length not stated: the longest example, or the model's own positions")
    settings.text("quantize")
    optimizer = settings.text(settings.first("optimizer.class_path", "optimizer") or "optimizer", "AdamW").lower()
    return Found(
        policy=policy,
        gpus=gpus,
        seq=seq or None,
        global_batch=batch,
        precision=HALVES.get(precision, ""),
        notes=tuple(notes),
        tune=_tune(settings) if adapts else "",
        called=settings.text("checkpoint_dir") or settings.text("model_name"),
        optimizer="adamw-8bit" if "8bit" in optimizer else "adamw" if "adam" in optimizer else "sgd",
    )


def _tune(settings: FileSettings) -> str:
    names = [
        module
        for part, modules in TARGETS.items()
        if settings.flag(f"lora_{part}", part in USUAL)
        for module in modules
    ]
    settings.flag("lora_head")
    four = settings.text("quantize")
    base = "nf4" if four.endswith("-dq") else "nf4-single" if four.startswith(("bnb.nf4", "bnb.fp4")) else ""
    return tune_text(settings.whole("lora_r", 8), names, base=base)


FORMAT = Format(
    name="litgpt", title="LitGPT", stack="litgpt", claims=_claims, read=_read, only=FAMILY, adapters=True,
    source="Lightning-AI/litgpt 26857050f: litgpt/finetune/lora.py, full.py, litgpt/pretrain.py, litgpt/args.py",
    starts=r"litgpt (?:finetune|pretrain)\w*|(?:.*/)?litgpt/(?:finetune/\w+|pretrain)\.py",
)  # fmt: skip
