"""LLaMA-Factory: arguments of its own beside those of Hugging Face's Trainer; its second version's too."""

from typing import Any

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import FAMILY, TrainerNames, read_trainer
from shardwise.programs.formats._tuning import peft_text
from shardwise.spec.policy import Policy

BUNDLED = {f"ds_z{stage}{kind}_config": (stage, "cpu" if "offload" in kind else "none")
           for stage in (0, 2, 3) for kind in ("", "_offload", "_fp8", "_autotp")}  # fmt: skip
"""its examples/deepspeed"""
NAMES = TrainerNames(
    seq=("cutoff_len",), usual_seq=2048, recomputes=True, bundled=BUNDLED, packing=("packing", "neat_packing")
)
OWN = ("stage", "finetuning_type", "cutoff_len", "template")
MEMORY = ("use_galore", "use_badam", "use_apollo", "use_unsloth", "use_unsloth_gc", "fp8", "upcast_layernorm",
          "use_llama_pro", "pissa_init", "use_mca", "use_hyper_parallel", "use_v1_kernels")  # fmt: skip


def _claims(settings: FileSettings) -> bool:
    second = settings.has("train_dataset") and settings.has("cutoff_len") and settings.has("micro_batch_size")
    return (settings.has("model_name_or_path") and sum(map(settings.has, OWN)) >= 2) or (
        second and settings.has("model")
    )


TOWERS = ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model", "train_mm_proj_only")
"""of models that see"""


def _read(settings: FileSettings, known: Known) -> Found:
    if settings.has("micro_batch_size") or settings.has("dist_config.name"):
        return _second(settings, known)
    if settings.flag("use_mca"):
        raise ValueError(f"{settings.where}: use_mca true trains on Megatron-Core, whose settings here are not read")
    if settings.has("do_train") and not settings.flag("do_train"):
        raise ValueError(f"{settings.where}: do_train is false: nothing is trained")
    notes, beyond = list[str](), list[str]()
    more: dict[str, Any] = {"called": settings.text("model_name_or_path")}
    kind, stage = settings.text("finetuning_type", "lora"), settings.text("stage", "sft")
    if kind == "lora":
        more["tune"] = peft_text(
            settings, notes, beyond, rank=8, rank_names=("lora_rank",), targets=("all",), target_names=("lora_target",)
        )
    elif kind == "freeze":
        count = settings.whole("freeze_trainable_layers", 2, least=-(10**4))
        if known.layers and count > 0:
            more["freeze"] = f"embeddings,first={max(known.layers - count, 0)}"
        else:
            beyond.append(f"freeze_trainable_layers {count}: the layers that are trained; all are priced so")
    elif kind != "full":
        raise settings.refuse("finetuning_type", "full, lora or freeze")
    beyond += [f"{name}: which parts are trained; all are priced so" for name in TOWERS if settings.flag(name)]
    if stage in ("dpo", "rm", "kto", "ppo"):
        beyond.append(f"stage {stage}: a step runs more than one forward of an example; one of each sequence is priced")
    beyond += [f"{name}: changes memory or kernels" for name in MEMORY
               if settings.has(name) and settings.flag(name)]  # fmt: skip
    return read_trainer(settings, known, NAMES, notes=notes, not_modelled=beyond, **more)


def _second(settings: FileSettings, known: Known) -> Found:
    """The second version: its own trainer, sharded by FSDP2 (src/llamafactory/v1/config/training_args.py)."""
    cp, gpus = settings.whole("cp_size"), known.gpus
    micro, replicas = settings.whole("micro_batch_size"), settings.whole("mp_replicate_size")
    dp = settings.whole("dp_size", max((gpus or 1) // cp, 1))
    name = settings.text("dist_config.name", "fsdp2")
    notes = [] if gpus else ["the file does not say how many GPUs: one replica is assumed"]
    if name not in ("fsdp2", "fsdp", "fsdp_turbo", "fsdpturbo"):
        raise settings.refuse("dist_config.name", "fsdp2")
    rank = settings.whole("peft_config.r", 8) if settings.text("peft_config.name") in ("lora", "qlora") else 0
    targets = settings.words("peft_config.target_modules") or ("all",)
    policy = Policy(
        dp=dp, cp=cp, ep=settings.whole("dist_config.ep_size", settings.whole("ep_size")), zero=3 if dp * cp > 1 else 0,
        shard_group=dp * cp // replicas if replicas > 1 else 0, micro_batch=micro, sp=False,
        recompute="full" if settings.flag("enable_activation_checkpointing", True) else "none",
    )  # fmt: skip
    batch = settings.whole("global_batch_size", dp * micro)
    return Found(
        policy=policy, gpus=gpus, seq=settings.whole("cutoff_len", 2048), global_batch=batch,
        precision="bf16" if settings.flag("bf16", True) else "fp32", optimizer="adamw", notes=tuple(notes),
        called=settings.text("model"), tune=f"lora,rank={rank},targets={','.join(targets)}" if rank else "",
        software={"context_parallel": settings.text("cp_mode", "ulysses")} if cp > 1 else {},
    )  # fmt: skip


FORMAT = Format(
    name="llama_factory", title="LLaMA-Factory", stack="hugging-face", parts=True, only=FAMILY,
    source="hiyouga/LLaMA-Factory ff6d4d12e: src/llamafactory/hparams, src/llamafactory/v1/config",
    starts=r"llamafactory-cli train|lmf train|llamafactory-cli sft|(?:.*/)?llamafactory/launcher\.py", claims=_claims,
    read=_read, adapters=True,
)  # fmt: skip
