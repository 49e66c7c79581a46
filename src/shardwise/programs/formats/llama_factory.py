"""LLaMA-Factory: arguments of its own beside those of Hugging Face's Trainer; its second version's too."""

from dataclasses import replace
from typing import Any

from shardwise.programs.formats import accelerate
from shardwise.programs.formats._adapters import ALL, peft_targets
from shardwise.programs.formats._contract import Found, Known, Launch, Written
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import OF_TRAINER, TrainerNames, read_trainer
from shardwise.programs.formats._tuning import peft_text
from shardwise.spec.policy import Policy

STACK = "hugging-face@llama-factory"

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
    settings.flag("neat_packing")
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
    found = read_trainer(settings, known, NAMES, notes=notes, not_modelled=beyond, **more)
    return replace(found, stack=STACK) if found.stack == OF_TRAINER else found


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


def _write(launch: Launch) -> Written:
    policy, job = launch.policy, launch.case.job
    data: dict[str, Any] = {
        "model_name_or_path": "MODEL", "dataset": "DATASET", "template": "default", "output_dir": "output",
        "stage": "sft", "do_train": True, "num_train_epochs": 1.0, "learning_rate": 0.0002, "cutoff_len": job.seq,
        "packing": True, "neat_packing": True, "flash_attn": "fa2", job.precision.compute: True,
        "optim": "adamw_torch", "per_device_train_batch_size": policy.micro_batch,
        "gradient_accumulation_steps": job.global_batch // (policy.dp * policy.micro_batch),
        "disable_gradient_checkpointing": policy.recompute != "full", "finetuning_type": "full",
    }  # fmt: skip
    if job.tuning is not None and (adapters := job.tuning.adapters) is not None:
        targets = peft_targets(launch.case.model, adapters)
        data |= {"finetuning_type": "lora", "lora_rank": adapters.rank, "lora_alpha": 2 * adapters.rank,
                 "lora_dropout": 0.0, "lora_target": "all" if targets == [ALL] else ",".join(targets)}  # fmt: skip
        data |= {"use_dora": True} if adapters.magnitudes else {}
        if job.tuning.base:
            data |= {"quantization_bit": 4, "quantization_type": "nf4", "double_quantization": job.tuning.base == "nf4"}
    notes = ("MODEL_PATH (a folder or hub id), DATASET, TEMPLATE and OUTPUT are yours; so are num_train_epochs and "
             "learning_rate in llama_factory.yaml",)  # fmt: skip
    words = ['"model_name_or_path=${MODEL_PATH:?}"', '"dataset=${DATASET:?}"', '"template=${TEMPLATE:-default}"',
             '"output_dir=${OUTPUT:-output}"']  # fmt: skip
    program = "-m llamafactory.launcher llama_factory.yaml"
    written = accelerate.started(launch, program, words, notes, batch=False, recomputes=False)
    return replace(written, files={**written.files, "llama_factory.yaml": yaml_text(data, notes)})


FORMAT = replace(
    accelerate.FORMAT, name="llama_factory", title="LLaMA-Factory", stack=STACK, gaps=accelerate.gaps_of_program,
    write=_write, claims=_claims, read=_read, own_script=False, parts=True, smoke="",
    source="hiyouga/LLaMA-Factory 0.9.5: src/llamafactory/hparams, src/llamafactory/v1/config",
    starts=r"llamafactory-cli (?:train|sft)|lmf train|llamafactory\.launcher|(?:.*/)?llamafactory/launcher\.py",
)  # fmt: skip
