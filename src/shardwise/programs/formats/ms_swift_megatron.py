"""ms-swift on Megatron-Core (`megatron sft`): Megatron's names, with defaults of its own."""

from dataclasses import replace

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._megatron import ONLY, read
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._tuning import peft_text
from shardwise.programs.formats.ms_swift import frozen_of

OWN = {
    "use_distributed_optimizer": True,
    "moe_token_dispatcher_type": "alltoall",
    "recompute_granularity": "selective",
    "recompute_modules": ("core_attn",),
    "cross_entropy_loss_fusion": True,
    "micro_batch_size": 1,
    "global_batch_size": 16,
    "expert_tensor_parallel_size": 1,
    "fp8_recipe": "delayed",
}
"""where its command is silent (swift/megatron/arguments/megatron_args.py)"""


def _claims(settings: FileSettings) -> bool:
    return bool(settings.first("tuner_type", "train_type")) and settings.has("micro_batch_size")


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    stated = {**OWN, **settings.values}
    if settings.text("recompute_granularity") == "none":
        del stated["recompute_granularity"]
    inner = FileSettings(stated, settings.where, settings.program, settings.track)
    found = read(inner, known, OWN)
    kind = settings.first("tuner_type", "train_type")
    tuner = settings.text(kind, "full") if kind else "full"
    tune = ""
    if tuner in ("lora", "lora_llm"):
        tune = peft_text(
            settings,
            notes,
            beyond,
            rank=8,
            rank_names=("lora_rank",),
            targets=("all",),
            target_names=("target_modules",),
        )
    elif tuner != "full":
        raise settings.refuse(kind, "lora or full")
    if settings.has("rlhf_type"):
        beyond.append(
            f"rlhf_type {settings.text('rlhf_type')}: rollouts and other models' passes; the update alone is priced"
        )
    if settings.flag("padding_free", True) and not settings.flag("packing"):
        notes.append("sequences of a micro-batch are joined without padding: max_length is the longest")
    return replace(
        found,
        seq=settings.whole_or_none("max_length") or found.seq,
        precision=found.precision or "bf16",
        called=settings.text(settings.first("model", "load") or "model"),
        tune=tune,
        optimizer=found.optimizer or "adamw",
        freeze="" if tune else frozen_of(settings, beyond),
        notes=(*found.notes, *notes),
        not_modelled=(*found.not_modelled, *beyond),
    )


FORMAT = Format(
    name="ms_swift_megatron",
    title="Megatron-SWIFT",
    stack="megatron-core",
    only=ONLY,
    source="modelscope/ms-swift 3602360a5: swift/megatron/arguments/megatron_args.py",
    states=("context_parallel", "dispatcher"),
    starts=r"megatron (?:sft|pt|rlhf)|(?:.*/)?swift/cli/_megatron/(?:sft|pt|rlhf)\.py",
    claims=_claims,
    read=_read,
    adapters=True,
)
